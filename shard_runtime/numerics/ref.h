/*
 * The functions of the reference row, each with the contract of its slot in struct numerics_ops. Plain loops
 * in the papers' order on one thread, sums in double: slow, and the measure of the others.
 */
#ifndef NUMERICS_REF_H
#define NUMERICS_REF_H

#include "shard_runtime/numerics/numerics.h"

enum fsdp_status ref_matmul_create(struct numerics *numerics, const struct matmul_desc *desc,
                                   struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err);
void ref_matmul_destroy(struct matmul *matmul);
enum fsdp_status ref_matmul_run(struct matmul *matmul, struct device_stream *stream, const void *a,
                                const void *b, const void *bias, void *c, void *scratch,
                                struct fsdp_err *err);

void ref_column_sum(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                    size_t rows, size_t cols, bool accumulate);
void ref_add(struct numerics *numerics, struct device_stream *stream, const float *a, const float *b,
             float *out, size_t n_elems);
void ref_dropout(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                 size_t rows, size_t cols, const struct dropout *dropout, bool accumulate);
void ref_layer_norm(struct numerics *numerics, struct device_stream *stream, const float *x,
                    const float *weight, const float *bias, float *y, float *mean, float *rstd, size_t rows,
                    size_t cols, float eps);
void ref_layer_norm_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                             const float *x, const float *weight, const float *mean, const float *rstd,
                             float *dx, bool accumulate_dx, float *dweight, float *dbias,
                             bool accumulate_params, void *scratch, size_t rows, size_t cols);
size_t ref_layer_norm_scratch(struct numerics *numerics, size_t rows, size_t cols);
void ref_rms_norm(const float *x, const float *weight, float *y, float *rstd, size_t rows, size_t cols,
                  float eps);
void ref_rms_norm_backward(const float *dy, const float *x, const float *weight, const float *rstd, float *dx,
                           bool accumulate_dx, float *dweight, bool accumulate_dweight, size_t rows,
                           size_t cols);
void ref_gelu(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
              size_t n_elems);
void ref_gelu_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                       const float *x, float *dx, size_t n_elems);
void ref_gelu_tanh(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                   size_t n_elems);
void ref_gelu_tanh_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                            const float *x, float *dx, size_t n_elems);
void ref_softmax(struct numerics *numerics, struct device_stream *stream, float *scores, float *dropped,
                 const struct attention_desc *desc, const struct dropout *dropout);
void ref_softmax_backward(struct numerics *numerics, struct device_stream *stream, const float *p,
                          const float *dp, float *ds, const struct attention_desc *desc,
                          const struct dropout *dropout);
enum fsdp_status ref_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                      struct fused_attention **out, size_t *forward_scratch,
                                      size_t *backward_scratch, struct fsdp_err *err);
void ref_attention_destroy(struct fused_attention *attention);
enum fsdp_status ref_attention_forward(struct fused_attention *attention, struct device_stream *stream,
                                       const struct fused_attention_forward *run, struct fsdp_err *err);
enum fsdp_status ref_attention_backward(struct fused_attention *attention, struct device_stream *stream,
                                        const struct fused_attention_backward *run, struct fsdp_err *err);
void ref_embedding(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                   const float *table, const float *positions, float *out, size_t rows, size_t cols,
                   size_t seq);
void ref_embedding_backward(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                            const float *dout, float *dtable, float *dpositions, size_t rows, size_t cols,
                            size_t seq);
void ref_cross_entropy(struct numerics *numerics, struct device_stream *stream, const float *logits,
                       const int32_t *targets, float *dlogits, size_t rows, size_t vocab, float scale,
                       double *loss_sum, uint64_t *n_targets);
void ref_adamw(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
               float *m, float *v, size_t n_elems, const struct adamw *h, float grad_scale, uint64_t step);
void ref_sgd(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
             float *buf, size_t n_elems, const struct sgd *h, float grad_scale, uint64_t step);
double ref_sum_powers(struct numerics *numerics, struct device_stream *stream, const float *x, size_t n_elems,
                      double p);
double ref_sum_squares(struct numerics *numerics, struct device_stream *stream, const float *x,
                       size_t n_elems);

#endif
