/*
 * Load a sharded state at any world size: each rank reads exactly the rows it owns now, wherever they were
 * saved, straight into place. No communication; every rank reads by itself. Checksums are not looked at
 * (shardfile/verify.h).
 */
#ifndef CHECKPOINT_LOAD_H
#define CHECKPOINT_LOAD_H

#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/checkpoint/tensors.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

enum checkpoint_load_flags {
    CHECKPOINT_SUBSET = 1, /* the checkpoint may hold more than is asked for (weights without optimizer) */
};

struct checkpoint_loaded {
    uint64_t size_bytes; /* read into the tensors */
    size_t n_reads;
    double seconds;
};

/**
 * Fill `rows` of every tensor from `step_directory`. Nothing is written to before names, types, shapes and
 * the coverage of every row are proven; a read that fails after that leaves the rows undefined.
 *   manifest  NULL, or receives what was saved beside the tensors: manifest_free() it
 *   loaded    NULL, or receives what was done
 *   FSDP_ERR_MISMATCH   sound, but of another model: the message names the first tensor that does not fit
 *   FSDP_ERR_NOT_FOUND  no such checkpoint
 *   FSDP_ERR_FORMAT     damaged: the message names the file
 *   FSDP_ERR_IO
 */
enum fsdp_status checkpoint_load(struct fsdp_io *io, const char *step_directory, int W, int rank,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors, unsigned flags,
                                 struct manifest *manifest, struct checkpoint_loaded *loaded,
                                 struct fsdp_err *err);

/** "<directory>/step-00000050" */
enum fsdp_status checkpoint_step_directory(const char *directory, int64_t step, char out[IO_PATH_BYTES],
                                           struct fsdp_err *err);

#endif
