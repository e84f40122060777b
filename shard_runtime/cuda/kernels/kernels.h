/*
 * The kernels of libfsdp_cuda.so, as C calls them: one launcher an operation. The mathematics, the rounding
 * points and the order of sums are those of shard_runtime/numerics/numerics.h; here is what a GPU adds.
 *
 * A launcher checks its shapes, queues its kernels on `stream` and returns before they ran. It returns a
 * cudaError_t. 0: everything was queued. 1 (cudaErrorInvalidValue): the arguments are not supported, and
 * nothing was queued. Any other value is the error of the launch. Sizes of 0 are no error: an empty sum is 0,
 * and nothing else is queued. Every pointer is device memory unless a line says host; host structs are read
 * before the call returns. dtype is FSDP_F32 or FSDP_BF16 unless said; bfloat16 is widened, computed on in
 * float32 and rounded once, to nearest even.
 *
 * Alignment: that of the element. Where a row's first byte and its length are multiples of 16 bytes the loads
 * are of 16 bytes; otherwise they are of one element. Lists: where a tensor's first byte is such a multiple;
 * its last elements go one by one. Of bfloat16 that is combined with float32 the loads are of 8 bytes. Both
 * ways give the same bits where a line does not say otherwise.
 *
 * Determinism: no kernel adds floats by atomics; the cut of a sum is a function of the shapes alone, never of
 * the device's size. Same inputs, same bits, on every run and every schedule of blocks. There is no other
 * mode.
 *
 * Tolerances are against the ref row of numerics.h on the same inputs. u is the unit roundoff of the output's
 * dtype: 6e-8 for float32, 3.9e-3 for bfloat16. With bfloat16 that one rounding is nearly all of the error.
 *
 * Scratch: as many bytes as shard_runtime/numerics/cuda_shapes.h says, aligned to 16. It is free again after
 * the call.
 *
 * Thread: the one whose current device `stream` belongs to. No launcher allocates, frees or waits.
 */
#ifndef CUDA_KERNELS_KERNELS_H
#define CUDA_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>

#include "shard_runtime/cuda/must_check.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/cuda_shapes.h"
#include "shard_runtime/numerics/numerics.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what cudaStream_t points to */

/* Elementwise */

/** out = a + b; out may be a or b. One rounding: exact against ref. */
MUST_CHECK int kernel_add(struct CUstream_st *stream, const void *a, const void *b, void *out, size_t n_elems,
                          enum fsdp_dtype dtype);

/** As numerics_ops.activation. Tolerance 4u of the largest |x| plus 1: erfcf and expf are within 2 units. */
MUST_CHECK int kernel_activation(struct CUstream_st *stream, const struct numerics_activation *run);
/** As numerics_ops.activation_backward. Tolerance 16u of the largest |dy| plus 1. */
MUST_CHECK int kernel_activation_backward(struct CUstream_st *stream,
                                          const struct numerics_activation_backward *run);

/**
 * out (rows, cols) (+)= dropout(x) with the mask of struct dropout, which is the cpu's bit for bit; out may
 * be x. `dropout` (host) NULL or of p 0: a copy, or a sum with accumulate. Exact against ref in float32.
 */
MUST_CHECK int kernel_dropout(struct CUstream_st *stream, const void *x, void *out, size_t rows, size_t cols,
                              const struct dropout *dropout, bool accumulate, enum fsdp_dtype dtype);

/* Norms over rows */

/**
 * LayerNorm. x, y: (rows, cols); weight, bias: (cols), all of `dtype`; mean, rstd: (rows) float32. bias may
 * be NULL. A warp a row: each lane sums every 32nd element (or pack) in float32, the lanes are added in
 * double. Tolerance 8u of the row's largest |y|: the lanes' sums are of cols / 32 terms.
 */
MUST_CHECK int kernel_layer_norm(struct CUstream_st *stream, const void *x, const void *weight,
                                 const void *bias, void *y, float *mean, float *rstd, size_t rows,
                                 size_t cols, float eps, enum fsdp_dtype dtype);
/**
 * Computes x = a + dropout(b), rounded to `dtype`, with the bits of kernel_dropout and kernel_add. Then
 * computes LayerNorm of x into y. x may be a or b; y may be none of them. b NULL: LayerNorm of a alone.
 * norm->dropout is in host memory, and may be set with either dtype.
 */
MUST_CHECK int kernel_add_layer_norm(struct CUstream_st *stream, const struct numerics_add_norm *norm);
/** RMSNorm (Zhang and Sennrich, 2019): y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). */
MUST_CHECK int kernel_rms_norm(struct CUstream_st *stream, const void *x, const void *weight, void *y,
                               float *rstd, size_t rows, size_t cols, float eps, enum fsdp_dtype dtype);
/** As kernel_add_layer_norm; norm->bias and norm->mean are not read. */
MUST_CHECK int kernel_add_rms_norm(struct CUstream_st *stream, const struct numerics_add_norm *norm);

/**
 * As numerics_ops.norm_backward, with `scratch` instead of norm->scratch; norm->dx may also be norm->dy.
 * shared_bytes: the shared memory that a block may have on this device; it decides how much a block keeps
 * there, never the result.
 *
 * dx: a warp sums a row, as in forward, or a block of 8 warps does where it has more than 2048 columns.
 * Tolerance 16u of the row's largest term. dweight, dbias: each warp (long rows: each block) adds its rows in
 * float32 in row order. The warps of a block are added in float32, the blocks in double, both in a fixed
 * order. Tolerance 16u of the sum of |terms|.
 */
MUST_CHECK int kernel_norm_backward(struct CUstream_st *stream, const struct numerics_norm_backward *norm,
                                    size_t shared_bytes, void *scratch);

/** out[j] (+)= sum_i x[i, j], out of out_dtype: the gradient of a bias. Summed in double: tolerance u. */
MUST_CHECK int kernel_column_sum(struct CUstream_st *stream, const void *x, enum fsdp_dtype dtype, void *out,
                                 enum fsdp_dtype out_dtype, size_t rows, size_t cols, bool accumulate,
                                 void *scratch);

/* Attention */

/**
 * numerics.h's fused attention, with its layout, for head_dim 1 to 512. desc and run are host structs. The
 * pointers in them are device memory, but run->dropout is host memory. Nothing is prepared: a run needs only
 * its desc.
 *
 * FSDP_BF16 with head_dim 64 or 128, pointers aligned to 16 bytes and strides that are multiples of 8 uses
 * mma. Those products (m16n8k16) have float32 sums. D and dS are rounded to bfloat16 before them (D before it
 * is divided by its row's sum). Everything else, and where `plain` is set: float32 FMA, nothing rounded
 * before the end. The tolerance of the result is a factor times the largest |value| plus 1; that of gradients
 * is twice as much. The factor is 32u for plain, and 1.5e-2 for mma, which rounds D, dS and the result to
 * bfloat16.
 */
MUST_CHECK int kernel_attention(struct CUstream_st *stream, const struct fused_attention_desc *desc,
                                const struct fused_attention_forward *run, bool plain);
/**
 * Row sums of dout * out come first. In one pass blocks own rows of dk and dv, in another rows of dq. Each
 * pass computes D again from lse. No atomics. run->scratch: cuda_attention_backward_bytes(), aligned to 16.
 */
MUST_CHECK int kernel_attention_backward(struct CUstream_st *stream, const struct fused_attention_desc *desc,
                                         const struct fused_attention_backward *run, bool plain);

/**
 * For attention that is not fused. The scores become probabilities in place; then `dropped` is written. As
 * numerics_ops.softmax. Tolerance 16u, dropped 32u.
 */
MUST_CHECK int kernel_softmax(struct CUstream_st *stream, float *scores, float *dropped,
                              const struct attention_desc *desc, const struct dropout *dropout);
/**
 * As numerics_ops.softmax with FSDP_BF16: p = softmax(scores) rounded to bfloat16. The scores' content is
 * undefined then.
 */
MUST_CHECK int kernel_softmax_bf16(struct CUstream_st *stream, float *scores, uint16_t *p,
                                   const struct attention_desc *desc);
/** As numerics_ops.softmax_backward. ds may be dp. Tolerance 8u of the row's largest |p * dp|. */
MUST_CHECK int kernel_softmax_backward(struct CUstream_st *stream, const float *p, const float *dp, float *ds,
                                       const struct attention_desc *desc, const struct dropout *dropout);
/** As numerics_ops.softmax_backward with FSDP_BF16: p becomes ds. */
MUST_CHECK int kernel_softmax_backward_bf16(struct CUstream_st *stream, uint16_t *p_ds, const float *dp,
                                            const struct attention_desc *desc);

/* Tokens */

/** out (rows, cols) = table[token[row]] (+ positions[row % seq] when not NULL), all of `dtype`. Exact. */
MUST_CHECK int kernel_embedding(struct CUstream_st *stream, const int32_t *tokens, const void *table,
                                const void *positions, void *out, size_t rows, size_t cols, size_t seq,
                                enum fsdp_dtype dtype);
/**
 * dtable[token[row]] += dout[row]. The rows of a token are cut into pieces of 32, in row order. A token of
 * one piece is added in row order: in float32 its bits are ref's. With more pieces, each is added in float32
 * in row order, then the pieces in double in order. Tolerance 32u of the sum of |terms|; the bits are the
 * same on every run. dpositions[t] += the sum over samples, in double in order: ref's bits. Either may be
 * NULL. A bfloat16 gradient is rounded once. rows below 2^31.
 */
MUST_CHECK int kernel_embedding_backward(struct CUstream_st *stream, const int32_t *tokens, const void *dout,
                                         enum fsdp_dtype dtype, void *dtable, void *dpositions,
                                         enum fsdp_dtype grad_dtype, size_t rows, size_t cols, size_t seq,
                                         void *scratch);

/**
 * Per row, the loss is log(sum exp(logits)) - logits[target]. *loss_sum += their sum, in double, in row order
 * within 256 fixed runs and then over the runs. *n_targets += rows whose target is not -100. dlogits, when
 * not NULL, gets (softmax - onehot) * scale. Ignored rows, and columns from `vocab` on, get zeros. It may be
 * logits: no copy of them is made. Targets are -100 or in [0, vocab). Tolerance: loss 1e-6 of the row's loss
 * plus 1 (expf, sums of vocab / 512 terms in float32); dlogits 4u * scale.
 *
 * If a row is at most KERNEL_LOSS_CACHE_BYTES (50,600 columns of bfloat16), each logit is read once from
 * device memory. What a longer row has beyond that is read twice. Each gradient is written once. Both go 16
 * bytes at a time where addresses and row_stride are multiples of that. 128 bytes of shared memory are for
 * the sums.
 */
enum { KERNEL_LOSS_CACHE_BYTES = CUDA_LEAST_SHARED_BYTES - 128 };
MUST_CHECK int kernel_cross_entropy(struct CUstream_st *stream, const struct numerics_cross_entropy *loss,
                                    double *loss_sum, uint64_t *n_targets, void *scratch);

/* Lists of tensors: a group's shards in one launch */

/*
 * A list is read before the call returns, and travels in the kernel's arguments. One launch holds 470
 * updates, 790 copies or 1010 spans. A longer list takes more launches. The bits of a tensor are those of a
 * list of it alone.
 */

/** As numerics_ops.adamw; gradients may be bfloat16. The bits are ref's (no product is fused with a sum). */
MUST_CHECK int kernel_adamw(struct CUstream_st *stream, const struct numerics_adamw *run);
/** As numerics_ops.sgd; gradients may be bfloat16. The bits are ref's. */
MUST_CHECK int kernel_sgd(struct CUstream_st *stream, const struct numerics_sgd *run);

/** As device_ops.cast_list. Exact against device_ops.cast of the cpu. */
MUST_CHECK int kernel_cast(struct CUstream_st *stream, const struct device_cast *casts, size_t n_casts,
                           float scale, bool accumulate);

/** As device_ops.round_list. Exact against that of the cpu. */
MUST_CHECK int kernel_round(struct CUstream_st *stream, const struct device_rounding *roundings,
                            size_t n_roundings, uint64_t step);

/**
 * out[i] = sum over span i of |x|^p in double; of p infinite the largest |x|. NaN if any x is. Each chunk of
 * 16384 elements is summed by one block, a span's chunks by one more. p is at least 1. Tolerance 1e-13
 * relative: another order of sums in double.
 */
MUST_CHECK int kernel_sum_powers(struct CUstream_st *stream, const struct numerics_span *spans,
                                 size_t n_spans, double p, double *out, void *scratch);
static inline size_t kernel_sum_powers_bytes(const struct numerics_span *spans, size_t n_spans)
{
    size_t size_bytes = 0;

    for (size_t i = 0; i < n_spans; i++)
        size_bytes += cuda_sum_powers_bytes(spans[i].n_elems);
    return size_bytes;
}

/* Float8 (e4m3, no infinity, largest 448), one scale a tensor */

/**
 * *amax = max(*amax, largest |x|), so the caller sets it to zero first. Values that are not finite count as
 * infinity. Exact.
 */
MUST_CHECK int kernel_fp8_amax(struct CUstream_st *stream, const void *x, size_t n_elems,
                               enum fsdp_dtype dtype, float *amax);
/**
 * out[i] = e4m3(x[i] / scale), to nearest even, beyond 448 clamped (NaN stays NaN), with scale = max(*amax /
 * 448, 2^-100). Exact.
 */
MUST_CHECK int kernel_fp8_quantise(struct CUstream_st *stream, const void *x, size_t n_elems,
                                   enum fsdp_dtype dtype, const float *amax, uint8_t *out);
/** out[i] = x[i] * scale, of `dtype`; NaN throughout where *amax is not finite. Exact. */
MUST_CHECK int kernel_fp8_dequantise(struct CUstream_st *stream, const uint8_t *x, size_t n_elems,
                                     const float *amax, void *out, enum fsdp_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
