/*
 * The operations of the numerics table with their arguments in a row, for tests and benches. Each builds the
 * struct of arguments and calls the slot. `n` is an open row; OP_REF is the reference row, which needs no
 * opening.
 */
#ifndef TESTS_ORACLES_OPERATIONS_H
#define TESTS_ORACLES_OPERATIONS_H

#include <math.h>
#include <stdlib.h>

#include "shard_runtime/numerics/numerics.h"

#define OP_REF (&(struct numerics){ .ops = &numerics_ref_ops })

/* The operation `op` of a row on the fields that follow. */
#define OP(op, row, stream, ...) (row)->ops->op((row), stream, &(struct numerics_##op){ __VA_ARGS__ })

/* What the tests give an optimizer; each tensor has these. */
struct op_rates {
    double lr, beta1, beta2, eps, weight_decay, momentum;
};

static inline void op_add(struct numerics *n, struct device_stream *stream, enum fsdp_dtype dtype,
                          const void *a, const void *b, void *out, size_t n_elems)
{
    OP(add, n, stream, .dtype = dtype, .a = a, .b = b, .out = out, .n_elems = n_elems);
}

static inline void op_activation(struct numerics *n, struct device_stream *stream, enum fsdp_dtype dtype,
                                 enum numerics_function function, const void *x, void *y, size_t n_elems)
{
    OP(activation, n, stream, .dtype = dtype, .function = function, .x = x, .y = y, .n_elems = n_elems);
}

static inline void op_activation_backward(struct numerics *n, struct device_stream *stream,
                                          enum fsdp_dtype dtype, enum numerics_function function,
                                          const void *dy, const void *x, void *dx, size_t n_elems)
{
    OP(activation_backward, n, stream, .dtype = dtype, .function = function, .dy = dy, .x = x, .dx = dx,
       .n_elems = n_elems);
}

static inline void op_column_sum(struct numerics *n, struct device_stream *stream, enum fsdp_dtype dtype,
                                 const void *x, enum fsdp_dtype out_dtype, void *out, size_t rows,
                                 size_t cols, bool accumulate)
{
    OP(column_sum, n, stream, .dtype = dtype, .x = x, .out = out, .out_dtype = out_dtype, .rows = rows,
       .cols = cols, .accumulate = accumulate);
}

static inline void op_dropout(struct numerics *n, struct device_stream *stream, const float *x, float *out,
                              size_t rows, size_t cols, const struct dropout *mask, bool accumulate)
{
    OP(dropout, n, stream, .x = x, .out = out, .rows = rows, .cols = cols, .mask = mask,
       .accumulate = accumulate);
}

static inline void op_norm(struct numerics *n, struct device_stream *stream, enum fsdp_dtype dtype,
                           const void *x, const void *weight, const void *bias, void *y, float *mean,
                           float *rstd, size_t rows, size_t cols, float eps)
{
    OP(norm, n, stream, .dtype = dtype, .x = x, .weight = weight, .bias = bias, .y = y, .mean = mean,
       .rstd = rstd, .rows = rows, .cols = cols, .eps = eps);
}

/* Of float32, with one flag for both parameters. */
static inline void op_norm_backward(struct numerics *n, struct device_stream *stream, const float *dy,
                                    const float *x, const float *weight, const float *mean, const float *rstd,
                                    float *dx, bool accumulate_dx, float *dweight, float *dbias,
                                    bool accumulate_params, void *scratch, size_t rows, size_t cols)
{
    OP(norm_backward, n, stream, .dy = dy, .x = x, .weight = weight, .mean = mean, .rstd = rstd, .dx = dx,
       .accumulate_dx = accumulate_dx, .dweight = dweight, .dbias = dbias,
       .accumulate_dweight = accumulate_params, .accumulate_dbias = accumulate_params, .rows = rows,
       .cols = cols, .scratch = scratch);
}

/* Of float32; `dropout` NULL: none. */
static inline void op_softmax(struct numerics *n, struct device_stream *stream, float *scores, float *dropped,
                              const struct attention_desc *shape, const struct dropout *dropout)
{
    OP(softmax, n, stream, .scores = scores, .p = scores, .dropped = dropped, .shape = shape,
       .dropout = dropout);
}

static inline void op_softmax_backward(struct numerics *n, struct device_stream *stream, const float *p,
                                       float *dp, float *ds, const struct attention_desc *shape,
                                       const struct dropout *dropout)
{
    OP(softmax_backward, n, stream, .p = p, .dp = dp, .ds = ds, .shape = shape, .dropout = dropout);
}

static inline void op_softmax_bf16(struct numerics *n, struct device_stream *stream, float *scores,
                                   uint16_t *p, const struct attention_desc *shape)
{
    OP(softmax, n, stream, .dtype = FSDP_BF16, .scores = scores, .p = p, .shape = shape);
}

static inline void op_softmax_backward_bf16(struct numerics *n, struct device_stream *stream, uint16_t *p_ds,
                                            float *dp, const struct attention_desc *shape)
{
    OP(softmax_backward, n, stream, .dtype = FSDP_BF16, .p = p_ds, .dp = dp, .ds = p_ds, .shape = shape);
}

static inline void op_embedding(struct numerics *n, struct device_stream *stream, const int32_t *tokens,
                                const float *table, const float *positions, float *out, size_t rows,
                                size_t cols, size_t seq)
{
    OP(embedding, n, stream, .tokens = tokens, .table = table, .positions = positions, .out = out,
       .rows = rows, .cols = cols, .seq = seq);
}

static inline void op_embedding_backward(struct numerics *n, struct device_stream *stream,
                                         const int32_t *tokens, const float *dout, float *dtable,
                                         float *dpositions, size_t rows, size_t cols, size_t seq)
{
    OP(embedding_backward, n, stream, .tokens = tokens, .dout = dout, .dtable = dtable,
       .dpositions = dpositions, .rows = rows, .cols = cols, .seq = seq);
}

/* Of float32 logits whose rows are adjacent. */
static inline void op_cross_entropy(struct numerics *n, struct device_stream *stream, const float *logits,
                                    const int32_t *targets, float *dlogits, size_t rows, size_t vocab,
                                    float scale, double *loss_sum, uint64_t *n_targets)
{
    OP(cross_entropy, n, stream, .logits = logits, .targets = targets, .dlogits = dlogits, .rows = rows,
       .vocab = vocab, .row_stride = vocab, .scale = scale, .loss_sum = loss_sum, .n_targets = n_targets);
}

static inline struct numerics_update op_update(float *param, const float *grad, float *m, float *v,
                                               size_t n_elems, const struct op_rates *h, float grad_scale)
{
    struct numerics_update update = { .param = param, .grad = grad, .m = m, .v = v, .n_elems = n_elems };

    update.lr = h->lr;
    update.weight_decay = h->weight_decay;
    update.grad_scale = grad_scale;
    return update;
}

/* One tensor. */
static inline void op_adamw(struct numerics *n, struct device_stream *stream, float *param, const float *grad,
                            float *m, float *v, size_t n_elems, const struct op_rates *h, float grad_scale,
                            uint64_t step)
{
    const struct numerics_update update = op_update(param, grad, m, v, n_elems, h, grad_scale);

    OP(adamw, n, stream, .updates = &update, .n_updates = 1, .beta1 = h->beta1, .beta2 = h->beta2,
       .eps = h->eps, .step = step);
}

/* One tensor; `buf` NULL: without momentum. */
static inline void op_sgd(struct numerics *n, struct device_stream *stream, float *param, const float *grad,
                          float *buf, size_t n_elems, const struct op_rates *h, float grad_scale,
                          uint64_t step)
{
    const struct numerics_update update = op_update(param, grad, buf, NULL, n_elems, h, grad_scale);

    OP(sgd, n, stream, .updates = &update, .n_updates = 1, .momentum = h->momentum, .step = step);
}

/* One float32 tensor. */
static inline double op_sum_powers(struct numerics *n, struct device_stream *stream, const float *x,
                                   size_t n_elems, double p)
{
    const struct numerics_span span = { .data = x, .n_elems = n_elems };
    double sum;

    n->ops->sum_powers(n, stream, &(struct numerics_sum_powers){ &span, 1, p, &sum });
    return sum;
}

/* c = a b of matrices stored row by row, or of factors stored turned; in float32, times 1. */
static inline struct matmul_desc op_product(size_t m, size_t n, size_t k, bool a_turned, bool b_turned)
{
    struct matmul_desc d = { .outer = 1, .inner = 1, .m = m, .n = n, .k = k, .alpha = 1.0f };

    d.a = a_turned ? (struct matmul_view){ 0, 0, 1, m } : (struct matmul_view){ 0, 0, k, 1 };
    d.b = b_turned ? (struct matmul_view){ 0, 0, 1, k } : (struct matmul_view){ 0, 0, n, 1 };
    d.c = (struct matmul_view){ 0, 0, n, 1 };
    return d;
}

/* One product of a row on the CPU, with scratch memory of its own. */
static inline enum fsdp_status op_multiply(struct numerics *n, const struct matmul_desc *desc, const void *a,
                                           const void *b, const void *bias, void *c, struct fsdp_err *err)
{
    struct matmul *matmul;
    size_t bytes = 0;
    enum fsdp_status status = n->ops->matmul_create(n, desc, &matmul, &bytes, err);
    void *scratch = aligned_alloc(64, (bytes + 64) / 64 * 64);

    if (status == FSDP_OK)
        status = n->ops->matmul_run(matmul, NULL, a, b, desc->bias ? bias : NULL, c, scratch, err);
    n->ops->matmul_destroy(matmul);
    free(scratch);
    return status;
}

/* Attention whose q, k and v have rows of `stride` elements, and whose output has rows of its own. */
static inline struct fused_attention_desc op_attention(struct attention_desc shape, enum fsdp_dtype dtype,
                                                       size_t stride)
{
    struct fused_attention_desc d = { .shape = shape, .dtype = dtype };

    d.scale = 1.0f / sqrtf((float)shape.head_dim);
    d.q_stride = d.k_stride = d.v_stride = stride;
    d.out_stride = shape.heads * shape.head_dim;
    return d;
}

/* `in`: q, k and v. */
static inline enum fsdp_status op_attention_forward(struct numerics *n, struct fused_attention *attention,
                                                    struct device_stream *stream, void *const in[3],
                                                    void *out, float *lse, const struct dropout *dropout,
                                                    void *scratch, struct fsdp_err *err)
{
    const struct fused_attention_forward run = { in[0], in[1], in[2], out, lse, dropout, scratch };

    return n->ops->attention_forward(attention, stream, &run, err);
}

/* `d`: the gradients of q, k and v. */
static inline enum fsdp_status op_attention_backward(struct numerics *n, struct fused_attention *attention,
                                                     struct device_stream *stream, void *const in[3],
                                                     const void *out, const void *dout, const float *lse,
                                                     const struct dropout *dropout, void *const d[3],
                                                     void *scratch, struct fsdp_err *err)
{
    const struct fused_attention_backward run = { in[0],   in[1], in[2], out,  dout,   lse,
                                                  dropout, d[0],  d[1],  d[2], scratch };

    return n->ops->attention_backward(attention, stream, &run, err);
}

#endif
