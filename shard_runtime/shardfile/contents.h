/*
 * What stands where in a step directory: a box of every tensor, file by file, proven to cover each tensor
 * exactly once. Verifying needs the proof, loading the places. weights.h makes the same list of others' files.
 */
#ifndef SHARDFILE_CONTENTS_H
#define SHARDFILE_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/box.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

/*
 * In the metadata of each of our files, beside what PyTorch reads: a file of another save is known by them.
 */
#define CONTENTS_STEP_KEY       "fsdp_step"
#define CONTENTS_GENERATION_KEY "fsdp_generation"
#define CONTENTS_WORLD_KEY      "fsdp_world_size"
#define CONTENTS_RANK_KEY       "fsdp_rank"

/** A box of a tensor, contiguous in one file. */
struct contents_piece {
    uint32_t tensor; /* index in manifest.tensors */
    uint32_t file;   /* index in manifest.files */
    struct box box;
    uint64_t offset; /* of its first element, from the start of the file */
};

struct contents {
    struct manifest manifest;
    struct contents_piece *pieces; /* by tensor, then by offset */
    size_t n_pieces;
    size_t *starts; /* (n_tensors + 1): the pieces of tensor t are starts[t] .. starts[t + 1] - 1 */
    bool follows_links; /* the files may be symbolic links: the user named them. Those of a checkpoint may not */
};

/** Rows of dimension 0; a tensor without dimensions counts as one row. */
uint64_t contents_rows(const struct manifest_tensor *tensor);
/** Bytes of one row; sizes were checked when the contents were read. */
uint64_t contents_row_bytes(const struct manifest_tensor *tensor);

/**
 * Read manifest and headers of `step_directory` and prove coverage. Data is not read.
 *   FSDP_ERR_NOT_FOUND, FSDP_ERR_FORMAT (the message names file and tensor), FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status contents_read(struct fsdp_io *io, const char *step_directory, struct contents *out,
                               struct fsdp_err *err);

/** The index of the tensor called `name` in the manifest, or -1. */
int64_t contents_find(const struct contents *contents, const char *name);

/**
 * Sort the pieces, fill in `starts`, and prove that they cover every tensor of out->manifest exactly once. Every piece
 * must be within its tensor, unless the tensor's size does not fit 64 bits.
 *   FSDP_ERR_FORMAT  not so, or such a size; the message names the tensor
 */
enum fsdp_status contents_prove(struct contents *out, struct fsdp_err *err);

/** Open file `file` of the list, which is in `directory`, for reading. *fd is the caller's; `path` receives its path. */
enum fsdp_status contents_open_file(struct fsdp_io *io, const struct contents *contents, uint32_t file,
                                    const char *directory, char path[IO_PATH_BYTES], int *fd,
                                    struct fsdp_err *err);

void contents_free(struct contents *contents);

#endif
