/*
 * Reads all of a checkpoint, on several threads, and reports what is damaged: file, tensor and byte range.
 * The range is as exact as the checksums of the files' chunks allow (shardfile/chunk_sums.h). Without those,
 * a damaged file is named as a whole.
 */
#ifndef CKPT_DAMAGE_FIND_H
#define CKPT_DAMAGE_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

enum { DAMAGE_TENSOR_BYTES = 256, DAMAGE_REASON_BYTES = 512 };

/** One damaged range of bytes, or one reason why the checkpoint is not valid. */
struct damage {
    char file[64];                    /* the file's name; "": the files contradict each other */
    char tensor[DAMAGE_TENSOR_BYTES]; /* "": the header, the manifest, or not known */
    bool has_range;
    uint64_t begin, end; /* bytes of the file */
    uint64_t in_tensor;  /* where the range begins, counted in the tensor's bytes in this file */
    char reason[DAMAGE_REASON_BYTES];
};

struct damage_report {
    struct damage *list; /* in the order of files and bytes */
    size_t n, room;
    bool has_manifest; /* the manifest is sound; otherwise the next two members are 0 */
    uint64_t step, world_size;
    uint64_t bytes; /* read of tensor files */
};

/**
 * Verifies the checkpoint in `step_directory`. FSDP_OK: `report` has what was found, which is nothing if the
 * checkpoint is sound; the caller releases it with damage_report_free(), after errors too.
 *   FSDP_ERR_NOT_FOUND    there is no such directory
 *   FSDP_ERR_UNSUPPORTED  a newer format
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM  it could not be examined
 */
enum fsdp_status damage_find(struct fsdp_io *io, const char *step_directory, struct damage_report *report,
                             struct fsdp_err *err);

/** Frees the list and sets *report to zero. */
void damage_report_free(struct damage_report *report);

#endif
