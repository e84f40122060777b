/*
 * RMSNorm forward (Zhang and Sennrich, 2019): a warp owns a row, as in layer_norm.cu.
 */
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

template <class T, int N>
__global__ void __launch_bounds__(ROW_THREADS) rms_norm_rows(const T *x, const T *weight, T *y, float *rstd, size_t rows,
                                                             size_t cols, float eps)
{
    const size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, at = row * cols;
    float squares = 0, r;

    if (row >= rows)
        return; /* the whole warp */
    row_each<N>(cols, [&](size_t j) {
        const group<T, N> v = load_group<N>(x + at + j);

        for (int i = 0; i < N; i++)
            squares += widen(v.at[i]) * widen(v.at[i]);
    });
    r = static_cast<float>(1.0 / sqrt(warp_sum(static_cast<double>(squares)) / static_cast<double>(cols) +
                                      static_cast<double>(eps)));
    row_each<N>(cols, [&](size_t j) {
        const group<T, N> v = load_group<N>(x + at + j), w = load_group<N>(weight + j);
        group<T, N> out;

        for (int i = 0; i < N; i++)
            narrow(widen(v.at[i]) * r * widen(w.at[i]), &out.at[i]);
        store_group<N>(y + at + j, out);
    });
    if (threadIdx.x % WARP == 0)
        rstd[row] = r;
}

} // namespace

int kernel_rms_norm(struct CUstream_st *stream, const void *x, const void *weight, void *y, float *rstd, size_t rows,
                    size_t cols, float eps, enum fsdp_dtype dtype)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);
        const T *in = static_cast<const T *>(x), *w = static_cast<const T *>(weight);
        T *out = static_cast<T *>(y);

        if (rows == 0 || cols == 0)
            return static_cast<int>(KERNEL_OK);
        if (cols % pack<T>::N == 0 && is_packed(x) && is_packed(weight) && is_packed(y))
            return LAUNCH((rms_norm_rows<T, pack<T>::N>), blocks_of(rows, ROW_WARPS), ROW_THREADS, 0, stream, in, w, out,
                          rstd, rows, cols, eps);
        return LAUNCH((rms_norm_rows<T, 1>), blocks_of(rows, ROW_WARPS), ROW_THREADS, 0, stream, in, w, out, rstd, rows,
                      cols, eps);
    });
}
