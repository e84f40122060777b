/*
 * The row kernels: the arithmetic of the rows `plain` and `onednn` on one thread, in float32. All files of
 * numerics/isa are compiled once for each instruction set, and each set fills one struct row_kernels.
 * shard_runtime/numerics/rows*.c cuts an operation into ranges, one for each thread, and calls a kernel on
 * each range. The result for a row or an element does not depend on its range. So the bits do not depend on
 * the number of threads.
 *
 * ROW_KERNELS lists every kernel once. A file of numerics/isa defines the kernel `name` as ROW(name).
 */
#ifndef NUMERICS_ISA_KERNELS_H
#define NUMERICS_ISA_KERNELS_H

#include "shard_runtime/numerics/numerics.h"

/** A function of one element, over n elements: y = f(x), y may be x; and dx = dy * f'(x), dx may be dy. */
struct row_activation {
    void (*forward)(const float *x, float *y, size_t n);
    void (*backward)(const float *dy, const float *x, float *dx, size_t n);
};

/*
 * What each kernel does:
 *
 *   add                  out = a + b
 *   column_sum           out[j] (+)= sum_i x[i * stride + j] for j < cols: eight rows at a time in float32,
 *                        then in double
 *   dropout              rows from `first_row` of the whole on; dropout is on
 *   norm                 numerics_norm of float32 rows
 *   norm_backward        numerics_norm_backward of float32 rows; run->dx may be NULL. The sums over these
 *                        rows replace the (cols) doubles in dweight and dbias; dbias is not used without a
 *                        mean. work: 2 * cols floats
 *   softmax              rows begin to end - 1 of the (batch * heads * seq) rows of a whole tensor; `dropped`
 *                        may be NULL
 *   softmax_backward     the same rows; ds may be dp
 *   attention_softmax    the scores s of one query, which sees n of cols, become its probabilities; returns
 *                        log sum_j exp(s_j)
 *   attention_again      the same probabilities, computed from that logarithm
 *   cross_entropy        one row: returns the loss; dlogits (or NULL) = (softmax - onehot) * scale; dlogits
 *                        may be logits
 *   adamw, sgd           elements begin to end - 1 of one tensor
 *   sum_squares          returns the sum in double
 *   from_bf16, to_bf16   conversion; to_bf16 rounds to nearest even
 *   split_bf16           x = high + low up to 2^-16 of x: high is x rounded, low the rest, rounded; low is 0
 *                        if x is not finite
 */
#define ROW_KERNELS(KERNEL)                                                                                  \
    KERNEL(void, add, (const float *a, const float *b, float *out, size_t n))                                \
    KERNEL(void, column_sum,                                                                                 \
           (const float *x, size_t stride, float *out, size_t rows, size_t cols, bool accumulate))           \
    KERNEL(void, dropout,                                                                                    \
           (const float *x, float *out, size_t rows, size_t cols, const struct dropout *dropout,             \
            uint64_t first_row, bool accumulate))                                                            \
    KERNEL(void, norm, (const struct numerics_norm *run))                                                    \
    KERNEL(void, norm_backward,                                                                              \
           (const struct numerics_norm_backward *run, double *dweight, double *dbias, float *work))          \
    KERNEL(void, softmax,                                                                                    \
           (float *scores, float *dropped, size_t begin, size_t end, size_t seq, bool causal,                \
            const struct dropout *dropout))                                                                  \
    KERNEL(void, softmax_backward,                                                                           \
           (const float *p, const float *dp, float *ds, size_t begin, size_t end, size_t seq, bool causal,   \
            const struct dropout *dropout))                                                                  \
    KERNEL(float, attention_softmax, (float *s, size_t n, size_t cols))                                      \
    KERNEL(void, attention_again, (float *s, float lse, size_t n, size_t cols))                              \
    KERNEL(double, cross_entropy,                                                                            \
           (const float *logits, size_t target, float *dlogits, size_t vocab, float scale))                  \
    KERNEL(void, adamw,                                                                                      \
           (const struct numerics_adamw *run, const struct numerics_update *u, size_t begin, size_t end))    \
    KERNEL(void, sgd,                                                                                        \
           (const struct numerics_sgd *run, const struct numerics_update *u, size_t begin, size_t end))      \
    KERNEL(double, sum_squares, (const float *x, size_t n))                                                  \
    KERNEL(void, from_bf16, (const uint16_t *x, float *out, size_t n))                                       \
    KERNEL(void, to_bf16, (const float *x, uint16_t *out, size_t n))                                         \
    KERNEL(void, split_bf16, (const float *x, uint16_t *high, uint16_t *low, size_t n))

#define ROW_KERNEL_SLOT(result, name, arguments) result(*name) arguments;

struct row_kernels {
    const char *isa;                          /* as FSDP_ISA names it */
    const struct row_activation *activations; /* by enum numerics_function */
    ROW_KERNELS(ROW_KERNEL_SLOT)
};

extern const struct row_kernels row_kernels_base;
#if defined(__x86_64__)
extern const struct row_kernels row_kernels_avx2, row_kernels_avx512;
#endif

#ifdef ISA /* for the files that define kernels */
/* row_NAME_avx2 and so on, so that all sets link into one program. */
#define ISA_PASTE(name, isa)  row_##name##_##isa
#define ISA_EXPAND(name, isa) ISA_PASTE(name, isa)
#define ROW(name)             ISA_EXPAND(name, ISA)

#define ROW_KERNEL_DECLARE(result, name, arguments) result ROW(name) arguments;
ROW_KERNELS(ROW_KERNEL_DECLARE)
extern const struct row_activation ROW(activations)[NUMERICS_N_FUNCTIONS];
#endif

#endif
