/*
 * LayerNorm forward, alone and behind a residual sum. A warp owns a row: its lanes read it three times (mean, squares
 * about the mean, output), of which the second and third time come from the first-level cache.
 */
#include "shard_runtime/cuda/kernels/number.h"
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

template <class T>
struct norm_forward {
    const T *x, *residual; /* residual: NULL without the sum */
    T *sum;
    const T *weight, *bias;
    T *y;
    float *mean, *rstd;
    size_t rows, cols;
    float eps;
};

template <class T, int N>
__device__ void add_rows(const T *a, const T *b, T *sum, size_t cols)
{
    row_each<N>(cols, [&](size_t j) {
        const group<T, N> x = load_group<N>(a + j), r = load_group<N>(b + j);
        group<T, N> s;

        for (int i = 0; i < N; i++)
            narrow(widen(x.at[i]) + widen(r.at[i]), &s.at[i]);
        store_group<N>(sum + j, s);
    });
}

/* N elements at once: 16 bytes of them, or one. */
template <class T, int N>
__global__ void __launch_bounds__(ROW_THREADS) layer_norm_rows(norm_forward<T> norm)
{
    const size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, at = row * norm.cols;
    const T *x = norm.x + at;
    float sum = 0, squares = 0, mean, rstd;

    if (row >= norm.rows)
        return; /* the whole warp */
    if (norm.residual != NULL) {
        add_rows<T, N>(x, norm.residual + at, norm.sum + at, norm.cols);
        x = norm.sum + at; /* each lane reads again what itself wrote */
    }
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
    const bool packed = norm.cols % pack<T>::N == 0 && is_packed(norm.x) && is_packed(norm.residual) &&
                        is_packed(norm.sum) && is_packed(norm.weight) && is_packed(norm.bias) && is_packed(norm.y);

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
    return kernel_add_layer_norm(stream, x, NULL, NULL, weight, bias, y, mean, rstd, rows, cols, eps, dtype);
}

int kernel_add_layer_norm(struct CUstream_st *stream, const void *a, const void *b, void *sum, const void *weight,
                          const void *bias, void *y, float *mean, float *rstd, size_t rows, size_t cols, float eps,
                          enum fsdp_dtype dtype)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        return launch_norm<T>(stream, { static_cast<const T *>(a), static_cast<const T *>(b), static_cast<T *>(sum),
                                        static_cast<const T *>(weight), static_cast<const T *>(bias),
                                        static_cast<T *>(y), mean, rstd, rows, cols, eps });
    });
}
