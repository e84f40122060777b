/*
 * How a caller names what is saved and loaded: plain arrays, so that this folder knows no model. A parameter
 * P has its rows under P, its optimizer's state under "optimizer.exp_avg.P" and "optimizer.exp_avg_sq.P"
 * (AdamW) or "optimizer.momentum_buffer.P" (SGD), all of P's shape and cut alike.
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
 * One tensor of D = shape[0] rows, of which this rank holds those of layout_shard(D, W, rank) in `rows`, or, where it is
 * `placed`, the box of `sizes` at `offsets`. Where several ranks hold the same all but one say `saved_elsewhere`.
 */
struct checkpoint_tensor {
    const char *name;
    enum fsdp_dtype dtype;
    size_t n_dims; /* 1 to MANIFEST_MAX_DIMS */
    uint64_t shape[MANIFEST_MAX_DIMS];
    bool placed;
    uint64_t offsets[MANIFEST_MAX_DIMS], sizes[MANIFEST_MAX_DIMS];
    bool saved_elsewhere;
    void *rows; /* host memory, row-major without the padding; may be NULL where there is nothing */
    const struct rows_store *store; /* in place of rows: tensor `in_store` of it; or NULL */
    size_t in_store;
};

/** What this rank has of `tensor`. FSDP_ERR_ARG: a size that does not fit, or a box that is not within it. */
enum fsdp_status checkpoint_tensor_box(const struct checkpoint_tensor *tensor, int W, int rank,
                                       struct box *box, struct fsdp_err *err);

/**
 * This rank's rows of a `tensor` that is not placed: where they start, how many, bytes of each. FSDP_ERR_ARG: a size that does
 * not fit.
 */
struct checkpoint_rows {
    uint64_t first, n_rows, row_bytes;
};
enum fsdp_status checkpoint_tensor_rows(const struct checkpoint_tensor *tensor, int W, int rank,
                                        struct checkpoint_rows *rows, struct fsdp_err *err);

#endif
