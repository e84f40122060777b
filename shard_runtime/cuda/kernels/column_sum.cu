/*
 * Column sums in two passes. A block sums its chunk of rows in double, four warps by turns, into one row of
 * scratch. A thread then adds its column's chunks in order. The chunks depend on the number of rows alone,
 * and the bits not on how many columns (N) a lane takes at once.
 */
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

template <class T, int N>
__global__ void __launch_bounds__(ROW_THREADS)
    column_chunks(const T *x, double *partial, size_t rows, size_t cols, size_t chunk_rows)
{
    const size_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP,
                 j = (blockIdx.x * static_cast<size_t>(WARP) + lane) * N;
    const size_t first = blockIdx.y * chunk_rows, end = first + chunk_rows < rows ? first + chunk_rows : rows;
    double *room = block_shared<double>(), sum[N] = {};

    for (size_t i = first + warp; j < cols && i < end; i += ROW_WARPS) {
        const group<T, N> row = load_group<N>(x + i * cols + j);

        for (int k = 0; k < N; k++)
            sum[k] += static_cast<double>(widen(row.at[k]));
    }
    /*
     * the k-th sums of all lanes of a warp are adjacent, so that no two lanes use one bank of shared memory
     */
    for (int k = 0; k < N; k++)
        room[(warp * N + k) * WARP + lane] = sum[k];
    block_barrier();
    if (warp != 0 || j >= cols)
        return;
    for (int k = 0; k < N; k++) {
        for (int w = 1; w < ROW_WARPS; w++)
            sum[k] += room[(w * N + k) * WARP + lane];
        partial[blockIdx.y * cols + j + k] = sum[k];
    }
}

template <class O>
__global__ void __launch_bounds__(FLAT_THREADS)
    column_total(const double *partial, O *out, size_t chunks, size_t cols, bool accumulate)
{
    const size_t j = static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x;
    double sum;

    if (j >= cols)
        return;
    sum = accumulate ? static_cast<double>(widen(out[j])) : 0.0;
    for (size_t c = 0; c < chunks; c++)
        sum += partial[c * cols + j];
    narrow(static_cast<float>(sum), &out[j]);
}

} // namespace

int kernel_column_sum(struct CUstream_st *stream, const void *x, enum fsdp_dtype dtype, void *out,
                      enum fsdp_dtype out_dtype, size_t rows, size_t cols, bool accumulate, void *scratch)
{
    const size_t chunk_rows = cuda_column_chunk_rows(rows), chunks = blocks_of(rows, chunk_rows);
    double *partial = static_cast<double *>(scratch);
    int status = KERNEL_OK;

    if (cols == 0)
        return KERNEL_OK;
    if (rows > 0)
        status = by_dtype(dtype, [&](auto type) {
            using T = decltype(type);
            constexpr int N = pack<T>::N;
            const dim3 grid(blocks_of(cols, WARP), static_cast<unsigned>(chunks));
            const T *from = static_cast<const T *>(x);

            if (cols % N == 0 && is_packed(x))
                return LAUNCH((column_chunks<T, N>), dim3(blocks_of(cols, WARP * N), grid.y), ROW_THREADS,
                              N * ROW_THREADS * sizeof(double), stream, from, partial, rows, cols,
                              chunk_rows);
            return LAUNCH((column_chunks<T, 1>), grid, ROW_THREADS, ROW_THREADS * sizeof(double), stream,
                          from, partial, rows, cols, chunk_rows);
        });
    if (status != KERNEL_OK)
        return status;
    return by_dtype(out_dtype, [&](auto type) {
        using O = decltype(type);

        return LAUNCH(column_total<O>, blocks_of(cols, FLAT_THREADS), FLAT_THREADS, 0, stream, partial,
                      static_cast<O *>(out), chunks, cols, accumulate);
    });
}
