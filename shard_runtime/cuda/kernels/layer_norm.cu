/*
 * LayerNorm forward, alone and behind a residual sum. A warp owns a row: its lanes read it three times (mean, squares
 * about the mean, output), of which the second and third time come from the first-level cache.
 */
#include "shard_runtime/cuda/kernels/number.h"
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/residual.h"

namespace
{

template <class T>
struct norm_forward {
    const T *x;
    residual<T> with;
    const T *weight, *bias;
    T *y;
    float *mean, *rstd;
    size_t rows, cols;
    float eps;
};

/* N elements at once: 16 bytes of them, or one. */
template <class T, int N>
__global__ void __launch_bounds__(ROW_THREADS) layer_norm_rows(norm_forward<T> norm)
{
    const size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, at = row * norm.cols;
    float sum = 0, squares = 0, mean, rstd;
    const T *x;

    if (row >= norm.rows)
        return; /* the whole warp */
    x = summed_row<T, N>(norm.x, norm.with, row, norm.cols);
    row_each<N>(norm.cols, [&](size_t j) {
        const group<T, N> v = load_group<N>(x + j);

        for (int i = 0; i < N; i++)
            sum += widen(v.at[i]);
    });
    mean = static_cast<float>(warp_sum(static_cast<double>(sum)) / static_cast<double>(norm.cols));
    row_each<N>(norm.cols, [&](size_t j) {
        const group<T, N> v = load_group<N>(x + j);

        for (int i = 0; i < N; i++)
            squares += (widen(v.at[i]) - mean) * (widen(v.at[i]) - mean);
    });
    rstd = static_cast<float>(1.0 / sqrt(warp_sum(static_cast<double>(squares)) / static_cast<double>(norm.cols) +
                                         static_cast<double>(norm.eps)));
    row_each<N>(norm.cols, [&](size_t j) {
        const group<T, N> v = load_group<N>(x + j), w = load_group<N>(norm.weight + j);
        group<T, N> b = {}, y;

        if (norm.bias != NULL)
            b = load_group<N>(norm.bias + j);
        for (int i = 0; i < N; i++)
            narrow((widen(v.at[i]) - mean) * rstd * widen(w.at[i]) + widen(b.at[i]), &y.at[i]);
        store_group<N>(norm.y + at + j, y);
    });
    if (threadIdx.x % WARP == 0) {
        norm.mean[row] = mean;
        norm.rstd[row] = rstd;
    }
}

template <class T>
int launch_norm(struct CUstream_st *stream, const norm_forward<T> &norm)
{
    const unsigned blocks = blocks_of(norm.rows, ROW_WARPS);
    const bool packed = norm.cols % pack<T>::N == 0 && is_packed(norm.x) && is_packed(norm.with.b) &&
                        is_packed(norm.with.sum) && is_packed(norm.weight) && is_packed(norm.bias) && is_packed(norm.y);

    if (norm.rows == 0 || norm.cols == 0)
        return KERNEL_OK;
    if (packed)
        return LAUNCH((layer_norm_rows<T, pack<T>::N>), blocks, ROW_THREADS, 0, stream, norm);
    return LAUNCH((layer_norm_rows<T, 1>), blocks, ROW_THREADS, 0, stream, norm);
}

} // namespace

int kernel_layer_norm(struct CUstream_st *stream, const void *x, const void *weight, const void *bias, void *y,
                      float *mean, float *rstd, size_t rows, size_t cols, float eps, enum fsdp_dtype dtype)
{
    const struct numerics_add_norm alone = { x, NULL, NULL, NULL, y, weight, bias, mean, rstd, rows, cols, eps };

    return kernel_add_layer_norm(stream, &alone, dtype);
}

int kernel_add_layer_norm(struct CUstream_st *stream, const struct numerics_add_norm *norm, enum fsdp_dtype dtype)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        return launch_norm<T>(stream, { static_cast<const T *>(norm->a), residual_of<T>(norm),
                                        static_cast<const T *>(norm->weight), static_cast<const T *>(norm->bias),
                                        static_cast<T *>(norm->y), norm->mean, norm->rstd, norm->rows, norm->cols,
                                        norm->eps });
    });
}
