/*
 * The functions that the rows `plain` and `onednn` share: every operation other than products. The kernels of
 * numerics/isa compute; this code divides the work into one range for each thread. Each function has the
 * contract of its slot in struct numerics_ops. numerics->state starts with a struct rows.
 *
 *   rows.c         choice of the instruction set; add, activation, dropout, column_sum
 *   rows_norm.c    norm, norm_backward, add_norm
 *   rows_tokens.c  softmax, embedding, cross_entropy
 *   rows_optim.c   adamw, sgd, sum_powers
 *   rows_attention.c, rows_attention_tiles.c  attention without its matrices (rows_attention.h)
 */
#ifndef NUMERICS_ROWS_H
#define NUMERICS_ROWS_H

#include "shard_runtime/numerics/isa/kernels.h"

struct rows {
    const struct row_kernels *kernels;
};

/**
 * Choose the widest instruction set that this CPU has, or the set that FSDP_ISA names.
 *   FSDP_ERR_CONFIG  FSDP_ISA names a set that this CPU or this build does not have
 */
enum fsdp_status rows_init(struct rows *rows, struct fsdp_err *err);

#define ROWS_DECLARE(name) NUMERICS_FUNCTION(rows_##name, name);
NUMERICS_OPERATIONS(ROWS_DECLARE)

size_t rows_norm_scratch(struct numerics *numerics, enum fsdp_dtype dtype, size_t rows, size_t cols);

enum fsdp_status rows_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                       struct fused_attention **out, size_t *forward_scratch,
                                       size_t *backward_scratch, struct fsdp_err *err);
void rows_attention_destroy(struct fused_attention *attention);
enum fsdp_status rows_attention_forward(struct fused_attention *attention, struct device_stream *stream,
                                        const struct fused_attention_forward *run, struct fsdp_err *err);
enum fsdp_status rows_attention_backward(struct fused_attention *attention, struct device_stream *stream,
                                         const struct fused_attention_backward *run, struct fsdp_err *err);

#define ROWS_SLOT(operation) .operation = rows_##operation,
/** The slots of struct numerics_ops that these functions fill. */
#define ROWS_SLOTS                                                                                           \
    .takes_bf16 = true, .attention_create = rows_attention_create,                                           \
    .attention_destroy = rows_attention_destroy, .attention_forward = rows_attention_forward,                \
    .attention_backward = rows_attention_backward, .norm_scratch = rows_norm_scratch,                        \
    NUMERICS_OPERATIONS(ROWS_SLOT)

#endif
