/*
 * RMSNorm forward (Zhang and Sennrich, 2019), alone and behind a residual sum: a warp owns a row, as in layer_norm.cu.
 */
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/residual.h"

namespace
{

template <class T>
struct rms_forward {
    const T *x;
    residual<T> with;
    const T *weight;
    T *y;
    float *rstd;
    size_t rows, cols;
    float eps;
};

template <class T, int N>
__global__ void __launch_bounds__(ROW_THREADS) rms_norm_rows(rms_forward<T> norm)
{
    const size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP;
    float squares = 0, r;
    const T *x;

    if (row >= norm.rows)
        return; /* the whole warp */
    x = summed_row<T, N>(norm.x, norm.with, row, norm.cols);
    row_each<N>(norm.cols, [&](size_t j) {
        const group<T, N> v = load_group<N>(x + j);

        for (int i = 0; i < N; i++)
            squares += widen(v.at[i]) * widen(v.at[i]);
    });
    r = static_cast<float>(1.0 / sqrt(warp_sum(static_cast<double>(squares)) / static_cast<double>(norm.cols) +
                                      static_cast<double>(norm.eps)));
    row_each<N>(norm.cols, [&](size_t j) {
        const group<T, N> v = load_group<N>(x + j), w = load_group<N>(norm.weight + j);
        group<T, N> y;

        for (int i = 0; i < N; i++)
            narrow(widen(v.at[i]) * r * widen(w.at[i]), &y.at[i]);
        store_group<N>(norm.y + row * norm.cols + j, y);
    });
    if (threadIdx.x % WARP == 0)
        norm.rstd[row] = r;
}

template <class T>
int launch_rms(struct CUstream_st *stream, const rms_forward<T> &norm)
{
    const unsigned blocks = blocks_of(norm.rows, ROW_WARPS);
    const bool packed = norm.cols % pack<T>::N == 0 && is_packed(norm.x) && is_packed(norm.with.b) &&
                        is_packed(norm.with.sum) && is_packed(norm.weight) && is_packed(norm.y);

    if (norm.rows == 0 || norm.cols == 0)
        return KERNEL_OK;
    if (packed)
        return LAUNCH((rms_norm_rows<T, pack<T>::N>), blocks, ROW_THREADS, 0, stream, norm);
    return LAUNCH((rms_norm_rows<T, 1>), blocks, ROW_THREADS, 0, stream, norm);
}

} // namespace

int kernel_rms_norm(struct CUstream_st *stream, const void *x, const void *weight, void *y, float *rstd, size_t rows,
                    size_t cols, float eps, enum fsdp_dtype dtype)
{
    const struct numerics_add_norm alone = { x, NULL, NULL, NULL, y, weight, NULL, NULL, rstd, rows, cols, eps };

    return kernel_add_rms_norm(stream, &alone, dtype);
}

int kernel_add_rms_norm(struct CUstream_st *stream, const struct numerics_add_norm *norm, enum fsdp_dtype dtype)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        return launch_rms<T>(stream, { static_cast<const T *>(norm->a), residual_of<T>(norm),
                                       static_cast<const T *>(norm->weight), static_cast<T *>(norm->y), norm->rstd,
                                       norm->rows, norm->cols, norm->eps });
    });
}
