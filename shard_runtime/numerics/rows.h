/*
 * Everything of the table but the products, by the row kernels of numerics/isa: ranges are cut here, one a
 * thread. Rows `plain` and `onednn` share these functions; their numerics->state starts with a struct rows.
 * Each function has the contract of its slot in struct numerics_ops.
 */
#ifndef NUMERICS_ROWS_H
#define NUMERICS_ROWS_H

#include "shard_runtime/numerics/isa/kernels.h"
#include "shard_runtime/numerics/ref.h"
#include "shard_runtime/numerics/rows_bf16.h"

struct rows {
    const struct row_kernels *kernels;
};

/** Take the widest set that this CPU has, or FSDP_ISA's. FSDP_ERR_CONFIG: FSDP_ISA names none of them. */
enum fsdp_status rows_init(struct rows *rows, struct fsdp_err *err);

void rows_column_sum(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                     size_t rows, size_t cols, bool accumulate);
void rows_add(struct numerics *numerics, struct device_stream *stream, const float *a, const float *b,
              float *out, size_t n_elems);
void rows_dropout(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                  size_t rows, size_t cols, const struct dropout *dropout, bool accumulate);
void rows_layer_norm(struct numerics *numerics, struct device_stream *stream, const float *x,
                     const float *weight, const float *bias, float *y, float *mean, float *rstd, size_t rows,
                     size_t cols, float eps);
void rows_layer_norm_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                              const float *x, const float *weight, const float *mean, const float *rstd,
                              float *dx, bool accumulate_dx, float *dweight, float *dbias,
                              bool accumulate_params, void *scratch, size_t rows, size_t cols);
void rows_add_layer_norm(struct numerics *numerics, struct device_stream *stream, enum fsdp_dtype dtype,
                         const struct numerics_add_norm *add_norm);
size_t rows_layer_norm_scratch(struct numerics *numerics, size_t rows, size_t cols);
void rows_gelu(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
               size_t n_elems);
void rows_gelu_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                        const float *x, float *dx, size_t n_elems);
void rows_gelu_tanh(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                    size_t n_elems);
void rows_gelu_tanh_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                             const float *x, float *dx, size_t n_elems);
void rows_softmax(struct numerics *numerics, struct device_stream *stream, float *scores, float *dropped,
                  const struct attention_desc *desc, const struct dropout *dropout);
void rows_softmax_backward(struct numerics *numerics, struct device_stream *stream, const float *p,
                           const float *dp, float *ds, const struct attention_desc *desc,
                           const struct dropout *dropout);
enum fsdp_status rows_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                       struct fused_attention **out, size_t *forward_scratch,
                                       size_t *backward_scratch, struct fsdp_err *err);
void rows_attention_destroy(struct fused_attention *attention);
enum fsdp_status rows_attention_forward(struct fused_attention *attention, struct device_stream *stream,
                                        const struct fused_attention_forward *run, struct fsdp_err *err);
enum fsdp_status rows_attention_backward(struct fused_attention *attention, struct device_stream *stream,
                                         const struct fused_attention_backward *run, struct fsdp_err *err);
void rows_embedding(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                    const float *table, const float *positions, float *out, size_t rows, size_t cols,
                    size_t seq);
void rows_embedding_backward(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                             const float *dout, float *dtable, float *dpositions, size_t rows, size_t cols,
                             size_t seq);
void rows_cross_entropy(struct numerics *numerics, struct device_stream *stream, const float *logits,
                        const int32_t *targets, float *dlogits, size_t rows, size_t vocab, float scale,
                        double *loss_sum, uint64_t *n_targets);
void rows_adamw(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
                float *m, float *v, size_t n_elems, const struct adamw *h, float grad_scale, uint64_t step);
void rows_sgd(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
              float *buf, size_t n_elems, const struct sgd *h, float grad_scale, uint64_t step);
double rows_sum_squares(struct numerics *numerics, struct device_stream *stream, const float *x,
                        size_t n_elems);

/* All slots of struct numerics_ops that these fill. */
#define ROWS_SLOTS                                                                                           \
    .column_sum = rows_column_sum, .add = rows_add, .dropout = rows_dropout, .layer_norm = rows_layer_norm,  \
    .layer_norm_backward = rows_layer_norm_backward, .add_layer_norm = rows_add_layer_norm,                  \
    .layer_norm_scratch = rows_layer_norm_scratch, .gelu = rows_gelu, .gelu_backward = rows_gelu_backward,   \
    .gelu_tanh = rows_gelu_tanh, .gelu_tanh_backward = rows_gelu_tanh_backward, .softmax = rows_softmax,     \
    .softmax_backward = rows_softmax_backward, .attention_create = rows_attention_create,                    \
    .attention_destroy = rows_attention_destroy, .attention_forward = rows_attention_forward,                \
    .attention_backward = rows_attention_backward, .embedding = rows_embedding,                              \
    .embedding_backward = rows_embedding_backward, .cross_entropy = rows_cross_entropy, .adamw = rows_adamw, \
    .sgd = rows_sgd, .sum_powers = ref_sum_powers, .sum_squares = rows_sum_squares, .bf16 = &rows_bf16

#endif
