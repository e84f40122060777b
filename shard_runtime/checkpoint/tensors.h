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

#include "shard_runtime/shardfile/manifest.h"
#include "shard_runtime/shardfile/rows_store.h"

/**
 * One tensor of D = shape[0] rows, of which this rank holds those of layout_shard(D, cut_W, cut_rank) in `rows`; cut_W 0
 * means the world and this rank of it. Where several ranks hold the same rows all but one say `saved_elsewhere`.
 */
struct checkpoint_tensor {
    const char *name;
    enum fsdp_dtype dtype;
    size_t n_dims; /* 1 to MANIFEST_MAX_DIMS */
    uint64_t shape[MANIFEST_MAX_DIMS];
    int cut_W, cut_rank;
    bool saved_elsewhere;
    void *rows; /* host memory, (n_rows, shape[1], ...) without the padding; may be NULL where n_rows is 0 */
    const struct rows_store *store; /* in place of rows: tensor `in_store` of it; or NULL */
    size_t in_store;
};

/**
 * This rank's rows of `tensor`: where they start, how many, bytes of each. FSDP_ERR_ARG: a size that does not
 * fit.
 */
struct checkpoint_rows {
    uint64_t first, n_rows, row_bytes;
};
enum fsdp_status checkpoint_tensor_rows(const struct checkpoint_tensor *tensor, int W, int rank,
                                        struct checkpoint_rows *rows, struct fsdp_err *err);

#endif
