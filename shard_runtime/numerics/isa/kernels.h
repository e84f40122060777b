/*
 * The row kernels: one table for each instruction set, all compiled from the same files. A kernel works on a
 * range on one thread; shard_runtime/numerics/rows.c cuts the ranges. A row's or element's result does not
 * depend on the range it is called in, so that the bits do not depend on the number of threads.
 */
#ifndef NUMERICS_ISA_KERNELS_H
#define NUMERICS_ISA_KERNELS_H

#include "shard_runtime/numerics/numerics.h"

struct row_kernels {
    const char *isa; /* as FSDP_ISA names it */

    void (*add)(const float *a, const float *b, float *out, size_t n);
    /* out[j] (+)= sum_i x[i * stride + j], j < cols: eight rows at a time in float32, then double. */
    void (*column_sum)(const float *x, size_t stride, float *out, size_t rows, size_t cols, bool accumulate);
    /* Rows first_row ... of the whole; dropout is on. */
    void (*dropout)(const float *x, float *out, size_t rows, size_t cols, const struct dropout *dropout,
                    uint64_t first_row, bool accumulate);
    void (*layer_norm)(const float *x, const float *weight, const float *bias, float *y, float *mean,
                       float *rstd, size_t rows, size_t cols, float eps);
    /* dweight and dbias of these rows alone, (cols) doubles each; run: 2 * cols floats to work in. */
    void (*layer_norm_backward)(const float *dy, const float *x, const float *weight, const float *mean,
                                const float *rstd, float *dx, bool accumulate_dx, double *dweight,
                                double *dbias, float *run, size_t rows, size_t cols);
    /* As the two above, without a mean: run: cols floats. */
    void (*rms_norm)(const float *x, const float *weight, float *y, float *rstd, size_t rows, size_t cols,
                     float eps);
    void (*rms_norm_backward)(const float *dy, const float *x, const float *weight, const float *rstd,
                              float *dx, bool accumulate_dx, double *dweight, float *run, size_t rows,
                              size_t cols);
    void (*gelu)(const float *x, float *y, size_t n);
    void (*gelu_backward)(const float *dy, const float *x, float *dx, size_t n);
    void (*gelu_tanh)(const float *x, float *y, size_t n);
    void (*gelu_tanh_backward)(const float *dy, const float *x, float *dx, size_t n);
    /* Rows begin .. end - 1 of (batch * heads * seq) of a whole tensor whose start is given. */
    void (*softmax)(float *scores, float *dropped, size_t begin, size_t end, size_t seq, bool causal,
                    const struct dropout *dropout);
    void (*softmax_backward)(const float *p, const float *dp, float *ds, size_t begin, size_t end, size_t seq,
                             bool causal, const struct dropout *dropout);
    /* One query's scores s, of which it sees n of cols, become its probabilities; returns log sum_j exp(s_j). */
    float (*attention_softmax)(float *s, size_t n, size_t cols);
    /* The same, from that sum. */
    void (*attention_again)(float *s, float lse, size_t n, size_t cols);
    /* One row: the loss, with dlogits (or NULL) = (softmax - onehot) * scale. */
    double (*cross_entropy)(const float *logits, size_t target, float *dlogits, size_t vocab, float scale);
    void (*adamw)(float *param, const float *grad, float *m, float *v, size_t n, const struct adamw *h,
                  float grad_scale, uint64_t step);
    void (*sgd)(float *param, const float *grad, float *buf, size_t n, const struct sgd *h, float grad_scale,
                uint64_t step);
    double (*sum_squares)(const float *x, size_t n);
    void (*from_bf16)(const uint16_t *x, float *out, size_t n);
    void (*to_bf16)(const float *x, uint16_t *out, size_t n);
    /* x = high + low up to 2^-16 of it: high is x rounded, low what is left, rounded; 0 of what is not finite. */
    void (*split_bf16)(const float *x, uint16_t *high, uint16_t *low, size_t n);
};

extern const struct row_kernels row_kernels_base;
#if defined(__x86_64__)
extern const struct row_kernels row_kernels_avx2, row_kernels_avx512;
#endif

/* NAME_avx2 and so on, so that all sets link into one program. */
#define ISA_PASTE(name, isa)  name##_##isa
#define ISA_EXPAND(name, isa) ISA_PASTE(name, isa)
#define ISA_NAME(name)        ISA_EXPAND(name, ISA)
#define ISA_TEXT(isa)         #isa
#define ISA_STRING(isa)       ISA_TEXT(isa)

#ifdef ISA /* for the files that define them */
#define row_add                 ISA_NAME(row_add)
#define row_column_sum          ISA_NAME(row_column_sum)
#define row_dropout             ISA_NAME(row_dropout)
#define row_layer_norm          ISA_NAME(row_layer_norm)
#define row_layer_norm_backward ISA_NAME(row_layer_norm_backward)
#define row_rms_norm            ISA_NAME(row_rms_norm)
#define row_rms_norm_backward   ISA_NAME(row_rms_norm_backward)
#define row_gelu                ISA_NAME(row_gelu)
#define row_gelu_backward       ISA_NAME(row_gelu_backward)
#define row_gelu_tanh           ISA_NAME(row_gelu_tanh)
#define row_gelu_tanh_backward  ISA_NAME(row_gelu_tanh_backward)
#define row_softmax             ISA_NAME(row_softmax)
#define row_softmax_backward    ISA_NAME(row_softmax_backward)
#define row_attention_softmax   ISA_NAME(row_attention_softmax)
#define row_attention_again     ISA_NAME(row_attention_again)
#define row_cross_entropy       ISA_NAME(row_cross_entropy)
#define row_adamw               ISA_NAME(row_adamw)
#define row_sgd                 ISA_NAME(row_sgd)
#define row_sum_squares         ISA_NAME(row_sum_squares)
#define row_from_bf16           ISA_NAME(row_from_bf16)
#define row_to_bf16             ISA_NAME(row_to_bf16)
#define row_split_bf16          ISA_NAME(row_split_bf16)

void row_add(const float *a, const float *b, float *out, size_t n);
void row_column_sum(const float *x, size_t stride, float *out, size_t rows, size_t cols, bool accumulate);
void row_dropout(const float *x, float *out, size_t rows, size_t cols, const struct dropout *dropout,
                 uint64_t first_row, bool accumulate);
void row_layer_norm(const float *x, const float *weight, const float *bias, float *y, float *mean,
                    float *rstd, size_t rows, size_t cols, float eps);
void row_layer_norm_backward(const float *dy, const float *x, const float *weight, const float *mean,
                             const float *rstd, float *dx, bool accumulate_dx, double *dweight, double *dbias,
                             float *run, size_t rows, size_t cols);
void row_rms_norm(const float *x, const float *weight, float *y, float *rstd, size_t rows, size_t cols,
                  float eps);
void row_rms_norm_backward(const float *dy, const float *x, const float *weight, const float *rstd, float *dx,
                           bool accumulate_dx, double *dweight, float *run, size_t rows, size_t cols);
void row_gelu(const float *x, float *y, size_t n);
void row_gelu_backward(const float *dy, const float *x, float *dx, size_t n);
void row_gelu_tanh(const float *x, float *y, size_t n);
void row_gelu_tanh_backward(const float *dy, const float *x, float *dx, size_t n);
void row_softmax(float *scores, float *dropped, size_t begin, size_t end, size_t seq, bool causal,
                 const struct dropout *dropout);
void row_softmax_backward(const float *p, const float *dp, float *ds, size_t begin, size_t end, size_t seq,
                          bool causal, const struct dropout *dropout);
float row_attention_softmax(float *s, size_t n, size_t cols);
void row_attention_again(float *s, float lse, size_t n, size_t cols);
double row_cross_entropy(const float *logits, size_t target, float *dlogits, size_t vocab, float scale);
void row_adamw(float *param, const float *grad, float *m, float *v, size_t n, const struct adamw *h,
               float grad_scale, uint64_t step);
void row_sgd(float *param, const float *grad, float *buf, size_t n, const struct sgd *h, float grad_scale,
             uint64_t step);
double row_sum_squares(const float *x, size_t n);
void row_from_bf16(const uint16_t *x, float *out, size_t n);
void row_to_bf16(const float *x, uint16_t *out, size_t n);
void row_split_bf16(const float *x, uint16_t *high, uint16_t *low, size_t n);
#endif

#endif
