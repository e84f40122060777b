/*
 * Describes the tensors to save or load. A caller passes plain arrays, so this folder does not depend on the
 * model. A parameter P is saved under the name P. The optimizer state of P is saved under
 * "optimizer.exp_avg.P" and "optimizer.exp_avg_sq.P" (AdamW), or "optimizer.momentum_buffer.P" (SGD). The
 * state has the shape of P and is split in the same way.
 */
#ifndef CHECKPOINT_TENSORS_H
#define CHECKPOINT_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

#include "shard_runtime/shardfile/box.h"
#include "shard_runtime/shardfile/manifest.h"
#include "shard_runtime/shardfile/rows_store.h"

/**
 * One tensor, and the part of it that this rank has. If it is `placed`, that is the box of `sizes` at
 * `offsets`. Otherwise it is the rows of layout_shard(shape[0], W, rank). If several ranks have the same
 * elements, all but one of them set saved_elsewhere.
 */
struct checkpoint_tensor {
    const char *name;
    enum fsdp_dtype dtype;
    size_t n_dims; /* 1 to MANIFEST_MAX_DIMS */
    uint64_t shape[MANIFEST_MAX_DIMS];
    bool placed;
    uint64_t offsets[MANIFEST_MAX_DIMS], sizes[MANIFEST_MAX_DIMS];
    bool saved_elsewhere;
    void *rows; /* host memory, row-major without padding; may be NULL if the part is empty */
    const struct rows_store *store; /* replaces `rows`: tensor `in_store` of this store; or NULL */
    size_t in_store;
};

/**
 * Sets *box to the part of `tensor` that this rank has. Returns FSDP_ERR_ARG if a size overflows, if the box
 * is not within the tensor, or if it has elements but neither rows nor a store.
 */
enum fsdp_status checkpoint_tensor_box(const struct checkpoint_tensor *tensor, int W, int rank,
                                       struct box *box, struct fsdp_err *err);

/** This rank's rows of a tensor that is not placed: the first one, their number, and the bytes of each. */
struct checkpoint_rows {
    uint64_t first, n_rows, row_bytes;
};
/** Sets *rows to this rank's rows of `tensor`. Returns FSDP_ERR_ARG if a size overflows. */
enum fsdp_status checkpoint_tensor_rows(const struct checkpoint_tensor *tensor, int W, int rank,
                                        struct checkpoint_rows *rows, struct fsdp_err *err);

#endif
