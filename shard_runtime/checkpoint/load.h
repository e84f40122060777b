/*
 * Loads a sharded state at any world size. Each rank reads exactly the rows that it owns now, from whichever
 * files contain them, directly into their final memory. There is no communication. Checksums are not verified
 * here (shardfile/verify.h).
 */
#ifndef CHECKPOINT_LOAD_H
#define CHECKPOINT_LOAD_H

#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/checkpoint/tensors.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

enum checkpoint_load_flags {
    /* the checkpoint may contain more tensors than the caller asks for (weights without optimizer) */
    CHECKPOINT_SUBSET = 1,
};

/* Statistics of one checkpoint_load(). */
struct checkpoint_loaded {
    uint64_t size_bytes; /* bytes read into the tensors */
    size_t n_reads;
    double seconds;
};

/**
 * Fills `rows` of every tensor from `step_directory`. First it checks names, types, shapes and the coverage
 * of every row; until then it writes nothing. If a read fails later, the rows are undefined.
 *
 *   io        NULL: io_posix
 *   W, rank   the current world size and rank, not those of the save
 *   tensors   (n_tensors) the tensors and rows that this rank wants
 *   flags     enum checkpoint_load_flags
 *   manifest  NULL, or receives what was saved in addition to the tensors; the caller releases it with
 *             manifest_free()
 *   loaded    NULL, or receives the statistics
 *
 *   FSDP_ERR_MISMATCH   the checkpoint is undamaged, but belongs to another model: the message names the
 *                       first tensor that does not fit
 *   FSDP_ERR_NOT_FOUND  there is no such checkpoint
 *   FSDP_ERR_FORMAT     the checkpoint is damaged: the message names the file
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status checkpoint_load(struct fsdp_io *io, const char *step_directory, int W, int rank,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors, unsigned flags,
                                 struct manifest *manifest, struct checkpoint_loaded *loaded,
                                 struct fsdp_err *err);

#endif
