/*
 * Softmax over stored scores, forward and backward, for attention that is not fused: a warp a row of (batch *
 * heads * seq, seq). With causal, query i sees the keys 0 .. i.
 */
#include "shard_runtime/cuda/kernels/philox.h"
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

/* T is the dtype of the probabilities. In float32 they replace the scores. */
template <class T>
__global__ void __launch_bounds__(ROW_THREADS)
    softmax_rows(float *scores, T *p, float *dropped, size_t rows, size_t seq, bool causal, drop d)
{
    const size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, at = row * seq;
    const size_t n = causal ? row % seq + 1 : seq;
    float largest = -INFINITY, sum = 0;
    double total;

    if (row >= rows)
        return; /* the whole warp */
    row_each<1>(n, [&](size_t j) { largest = larger(largest, scores[at + j]); });
    largest = warp_largest(largest);
    row_each<1>(n, [&](size_t j) { sum += expf(scores[at + j] - largest); });
    total = warp_sum(static_cast<double>(sum));
    row_each<1>(seq, [&](size_t j) {
        const float value =
            j < n ? static_cast<float>(static_cast<double>(expf(scores[at + j] - largest)) / total) : 0.0f;

        narrow(value, &p[at + j]);
        if (dropped != NULL)
            dropped[at + j] = d.on ? times(value, drop_factor(d, row, j)) : value;
    });
}

/* ds = p * (dp' - sum_j p * dp') with dp' = dropout(dp); ds may be p or dp. */
template <class T>
__global__ void __launch_bounds__(ROW_THREADS)
    softmax_gradient(const T *p, const float *dp, T *ds, size_t rows, size_t seq, drop d)
{
    const size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, at = row * seq;
    float sum = 0, delta;

    if (row >= rows)
        return; /* the whole warp */
    row_each<1>(seq, [&](size_t j) {
        sum += widen(p[at + j]) * (d.on ? dp[at + j] * drop_factor(d, row, j) : dp[at + j]);
    });
    delta = static_cast<float>(warp_sum(static_cast<double>(sum)));
    row_each<1>(seq, [&](size_t j) {
        const float g = d.on ? dp[at + j] * drop_factor(d, row, j) : dp[at + j];

        narrow(widen(p[at + j]) * (g - delta), &ds[at + j]);
    });
}

size_t rows_of(const struct attention_desc *desc)
{
    return desc->batch * desc->heads * desc->seq;
}

template <class T>
int launch_softmax(struct CUstream_st *stream, float *scores, T *p, float *dropped,
                   const struct attention_desc *desc, const drop &d)
{
    if (rows_of(desc) == 0)
        return KERNEL_OK;
    return LAUNCH(softmax_rows<T>, blocks_of(rows_of(desc), ROW_WARPS), ROW_THREADS, 0, stream, scores, p,
                  dropped, rows_of(desc), desc->seq, desc->causal, d);
}

template <class T>
int launch_gradient(struct CUstream_st *stream, const T *p, const float *dp, T *ds,
                    const struct attention_desc *desc, const drop &d)
{
    if (rows_of(desc) == 0)
        return KERNEL_OK;
    return LAUNCH(softmax_gradient<T>, blocks_of(rows_of(desc), ROW_WARPS), ROW_THREADS, 0, stream, p, dp, ds,
                  rows_of(desc), desc->seq, d);
}

} // namespace

int kernel_softmax(struct CUstream_st *stream, float *scores, float *dropped,
                   const struct attention_desc *desc, const struct dropout *dropout)
{
    if (dropped == NULL && dropout_is_on(dropout))
        return KERNEL_INVALID;
    return launch_softmax(stream, scores, scores, dropped, desc, drop_of(dropout));
}

int kernel_softmax_bf16(struct CUstream_st *stream, float *scores, uint16_t *p,
                        const struct attention_desc *desc)
{
    return launch_softmax(stream, scores, reinterpret_cast<bf16 *>(p), NULL, desc, drop_of(NULL));
}

int kernel_softmax_backward(struct CUstream_st *stream, const float *p, const float *dp, float *ds,
                            const struct attention_desc *desc, const struct dropout *dropout)
{
    return launch_gradient(stream, p, dp, ds, desc, drop_of(dropout));
}

int kernel_softmax_backward_bf16(struct CUstream_st *stream, uint16_t *p_ds, const float *dp,
                                 const struct attention_desc *desc)
{
    bf16 *p = reinterpret_cast<bf16 *>(p_ds);

    return launch_gradient(stream, static_cast<const bf16 *>(p), dp, p, desc, drop_of(NULL));
}
