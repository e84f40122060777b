/*
 * LayerNorm forward, alone and after a residual sum. A warp owns a row, and reads it from global memory once.
 * The passes over it (mean, squares about the mean, output) find it in shared memory (residual.h).
 */
#include "shard_runtime/cuda/kernels/number.h"
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/residual.h"

namespace
{

template <class T> struct norm_forward {
    const T *x;
    residual<T> with;
    const T *weight, *bias;
    T *y;
    float *mean, *rstd;
    size_t rows, cols;
    float eps;
};

/*
 * Handles N elements at once: 16 bytes of them, or one element. KEPT: the row is in shared memory, see
 * residual.h.
 */
template <class T, int N, bool KEPT>
__global__ void __launch_bounds__(NORM_THREADS) layer_norm_rows(norm_forward<T> norm)
{
    const size_t warp = threadIdx.x / WARP, warps = blockDim.x / WARP, row = blockIdx.x * warps + warp;
    const size_t at = row * norm.cols;
    T *room = block_shared<T>(), *kept = room + warp * norm.cols, *kept_weight = room + warps * norm.cols;
    const T *x = KEPT ? kept : (norm.with.b == NULL ? norm.x : norm.with.sum) + at;
    const T *weight = KEPT ? kept_weight : norm.weight, *bias = KEPT ? kept_weight + norm.cols : norm.bias;
    float sum = 0, squares = 0, mean = 0, rstd = 0;

    if (KEPT) {
        keep_parameters<N>(kept_weight, norm.weight, norm.cols);
        if (norm.bias != NULL)
            keep_parameters<N>(kept_weight + norm.cols, norm.bias, norm.cols);
    }
    if (row < norm.rows) { /* the whole warp */
        row_each<N>(norm.cols, [&](size_t j) {
            const group<T, N> v = summed_group<N>(norm.x, norm.with, row, norm.cols, j);

            if (KEPT)
                store_group<N>(kept + j, v);
            for (int i = 0; i < N; i++)
                sum += widen(v.at[i]);
        });
        mean = static_cast<float>(warp_sum(static_cast<double>(sum)) / static_cast<double>(norm.cols));
        row_each<N>(norm.cols, [&](size_t j) {
            const group<T, N> v = load_group<N>(x + j);

            for (int i = 0; i < N; i++)
                squares += (widen(v.at[i]) - mean) * (widen(v.at[i]) - mean);
        });
        rstd = static_cast<float>(
            1.0 / sqrt(warp_sum(static_cast<double>(squares)) / static_cast<double>(norm.cols) +
                       static_cast<double>(norm.eps)));
    }
    if (KEPT)
        block_barrier(); /* the parameters are there */
    if (row >= norm.rows)
        return;
    row_each<N>(norm.cols, [&](size_t j) {
        const group<T, N> v = load_group<N>(x + j), w = load_group<N>(weight + j);
        group<T, N> b = {}, y;

        if (norm.bias != NULL)
            b = load_group<N>(bias + j);
        for (int i = 0; i < N; i++)
            narrow((widen(v.at[i]) - mean) * rstd * widen(w.at[i]) + widen(b.at[i]), &y.at[i]);
        store_group<N>(norm.y + at + j, y);
    });
    if (threadIdx.x % WARP == 0) {
        norm.mean[row] = mean;
        norm.rstd[row] = rstd;
    }
}

template <class T, int N> int launch_rows(struct CUstream_st *stream, const norm_forward<T> &norm)
{
    const norm_block block = norm_block_of(norm.cols * sizeof(T), norm.bias == NULL ? 1 : 2);
    const unsigned blocks = blocks_of(norm.rows, block.warps), threads = block.warps * WARP;

    if (block.kept)
        return LAUNCH((layer_norm_rows<T, N, true>), blocks, threads, block.shared_bytes, stream, norm);
    return LAUNCH((layer_norm_rows<T, N, false>), blocks, threads, 0, stream, norm);
}

template <class T> int launch_norm(struct CUstream_st *stream, const norm_forward<T> &norm)
{
    const bool packed = norm.cols % pack<T>::N == 0 && is_packed(norm.x) && is_packed(norm.with.b) &&
                        is_packed(norm.with.sum) && is_packed(norm.weight) && is_packed(norm.bias) &&
                        is_packed(norm.y);

    if (norm.rows == 0 || norm.cols == 0)
        return KERNEL_OK;
    return packed ? launch_rows<T, pack<T>::N>(stream, norm) : launch_rows<T, 1>(stream, norm);
}

} // namespace

int kernel_layer_norm(struct CUstream_st *stream, const void *x, const void *weight, const void *bias,
                      void *y, float *mean, float *rstd, size_t rows, size_t cols, float eps,
                      enum fsdp_dtype dtype)
{
    const struct numerics_add_norm alone = { dtype, x,    NULL, NULL, NULL, y,  weight,
                                             bias,  mean, rstd, rows, cols, eps };

    return kernel_add_layer_norm(stream, &alone);
}

int kernel_add_layer_norm(struct CUstream_st *stream, const struct numerics_add_norm *norm)
{
    return by_dtype(norm->dtype, [&](auto type) {
        using T = decltype(type);

        return launch_norm<T>(stream, { static_cast<const T *>(norm->a), residual_of<T>(norm),
                                        static_cast<const T *>(norm->weight),
                                        static_cast<const T *>(norm->bias), static_cast<T *>(norm->y),
                                        norm->mean, norm->rstd, norm->rows, norm->cols, norm->eps });
    });
}
