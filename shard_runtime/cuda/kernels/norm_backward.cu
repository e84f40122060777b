/*
 * Backward of LayerNorm and RMSNorm. With xhat = (x - mean) * rstd (mean 0 for RMSNorm) and g = dy * weight,
 *   dx = rstd * (g - mean_j(g) - xhat * mean_j(g * xhat))        (RMSNorm: without mean_j(g))
 *   dweight_j = sum over rows of dy * xhat                        dbias_j = sum over rows of dy
 * A warp owns every n-th row: it writes dx and adds to its own float32 sums of dweight and dbias, in shared memory
 * where they fit and in scratch where not. A second kernel adds the partial sums in order, in double.
 */
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

enum { MAX_BLOCKS = 256, MAX_SHARED_BYTES = 96 * 1024, MAX_TILE = WARP * 8 };

/* Where the warps' sums lie. A warp's run is (2, padded) floats: dweight, then dbias. */
struct norm_cut {
    unsigned blocks;
    size_t padded;   /* cols, rounded up to what a warp takes at once */
    bool in_shared;  /* a block's warps are added up before they are written */
    size_t partials; /* runs in scratch */
};

norm_cut cut_of(size_t rows, size_t cols)
{
    norm_cut cut;

    cut.blocks = blocks_of(rows, ROW_WARPS);
    cut.blocks = cut.blocks < MAX_BLOCKS ? cut.blocks : static_cast<unsigned>(MAX_BLOCKS);
    cut.padded = (cols + MAX_TILE - 1) / MAX_TILE * MAX_TILE;
    cut.in_shared = ROW_WARPS * 2 * cut.padded * sizeof(float) <= MAX_SHARED_BYTES;
    cut.partials = cut.in_shared ? cut.blocks : static_cast<size_t>(cut.blocks) * ROW_WARPS;
    return cut;
}

/* Column j's place in a run: the i-th elements of all lanes side by side, so that no two lanes share a bank. */
template <int N>
__device__ __forceinline__ size_t slot_of(size_t j)
{
    const size_t tile = j / (WARP * N) * (WARP * N), within = j - tile;

    return tile + within % N * WARP + within / N;
}

template <class T>
struct norm_gradient {
    const T *dy, *x, *weight;
    const float *mean, *rstd;
    T *dx;
    size_t rows, cols;
    bool accumulate_dx, parameters;
};

template <class T, int N>
__device__ void row_gradient(const norm_gradient<T> &norm, size_t row, float *run, size_t padded)
{
    const size_t at = row * norm.cols;
    const float mean = norm.mean == NULL ? 0.0f : norm.mean[row], rstd = norm.rstd[row];
    float sum_g = 0, sum_gx = 0, mean_g, mean_gx;

    row_each<N>(norm.cols, [&](size_t j) {
        const group<T, N> x = load_group<N>(norm.x + at + j), dy = load_group<N>(norm.dy + at + j);
        const group<T, N> w = load_group<N>(norm.weight + j);

        for (int i = 0; i < N; i++) {
            const float xhat = (widen(x.at[i]) - mean) * rstd, g = widen(dy.at[i]) * widen(w.at[i]);

            sum_g += g;
            sum_gx += g * xhat;
            if (norm.parameters) {
                run[slot_of<N>(j + i)] += widen(dy.at[i]) * xhat;
                run[padded + slot_of<N>(j + i)] += widen(dy.at[i]);
            }
        }
    });
    if (norm.dx == NULL)
        return;
    mean_g = static_cast<float>(warp_sum(static_cast<double>(sum_g)) / static_cast<double>(norm.cols));
    mean_gx = static_cast<float>(warp_sum(static_cast<double>(sum_gx)) / static_cast<double>(norm.cols));
    if (norm.mean == NULL)
        mean_g = 0;
    row_each<N>(norm.cols, [&](size_t j) {
        const group<T, N> x = load_group<N>(norm.x + at + j), dy = load_group<N>(norm.dy + at + j);
        const group<T, N> w = load_group<N>(norm.weight + j);
        group<T, N> dx;

        if (norm.accumulate_dx)
            dx = load_group<N>(norm.dx + at + j);
        for (int i = 0; i < N; i++) {
            const float xhat = (widen(x.at[i]) - mean) * rstd, g = widen(dy.at[i]) * widen(w.at[i]);
            const float d = rstd * (g - mean_g - xhat * mean_gx);

            narrow(norm.accumulate_dx ? widen(dx.at[i]) + d : d, &dx.at[i]);
        }
        store_group<N>(norm.dx + at + j, dx);
    });
}

template <class T, int N>
__global__ void __launch_bounds__(ROW_THREADS) norm_rows(norm_gradient<T> norm, float *partial, size_t padded,
                                                         bool in_shared)
{
    const size_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, run_size = 2 * padded;
    const size_t worker = static_cast<size_t>(blockIdx.x) * ROW_WARPS + warp;
    float *run = in_shared ? block_shared<float>() + warp * run_size : partial + worker * run_size;

    for (size_t k = lane; norm.parameters && k < run_size; k += WARP)
        run[k] = 0; /* by the lane that will add there: a slot's bank is its lane */
    for (size_t row = worker; row < norm.rows; row += static_cast<size_t>(gridDim.x) * ROW_WARPS)
        row_gradient<T, N>(norm, row, run, padded);
    if (!norm.parameters || !in_shared)
        return; /* the whole block */
    block_barrier();
    for (size_t k = threadIdx.x; k < run_size; k += ROW_THREADS) {
        float sum = 0;

        for (size_t w = 0; w < ROW_WARPS; w++)
            sum += block_shared<float>()[w * run_size + k];
        partial[blockIdx.x * run_size + k] = sum;
    }
}

template <int N, class O>
__global__ void __launch_bounds__(FLAT_THREADS) norm_parameters(const float *partial, size_t partials, size_t run_size,
                                                                O *out, size_t cols, bool accumulate)
{
    const size_t j = static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x;
    double sum;

    if (j >= cols)
        return;
    sum = accumulate ? static_cast<double>(widen(out[j])) : 0.0;
    for (size_t p = 0; p < partials; p++)
        sum += static_cast<double>(partial[p * run_size + slot_of<N>(j)]);
    narrow(static_cast<float>(sum), &out[j]);
}

template <int N>
int launch_parameters(struct CUstream_st *stream, const float *partial, const norm_cut &cut, void *out,
                      enum fsdp_dtype dtype, size_t cols, bool accumulate)
{
    if (out == NULL)
        return KERNEL_OK;
    return by_dtype(dtype, [&](auto type) {
        using O = decltype(type);

        return LAUNCH((norm_parameters<N, O>), blocks_of(cols, FLAT_THREADS), FLAT_THREADS, 0, stream, partial,
                      cut.partials, 2 * cut.padded, static_cast<O *>(out), cols, accumulate);
    });
}

template <class T, int N>
int launch_gradient(struct CUstream_st *stream, const struct kernel_norm_backward_args &args, float *partial)
{
    const norm_cut cut = cut_of(args.rows, args.cols);
    const norm_gradient<T> norm = { static_cast<const T *>(args.dy),
                                    static_cast<const T *>(args.x),
                                    static_cast<const T *>(args.weight),
                                    args.mean,
                                    args.rstd,
                                    static_cast<T *>(args.dx),
                                    args.rows,
                                    args.cols,
                                    args.accumulate_dx,
                                    args.dweight != NULL || args.dbias != NULL };
    const size_t shared = norm.parameters && cut.in_shared ? ROW_WARPS * 2 * cut.padded * sizeof(float) : 0;
    int status = KERNEL_OK;

    if (args.rows > 0)
        status = LAUNCH((norm_rows<T, N>), cut.blocks, ROW_THREADS, shared, stream, norm, partial, cut.padded,
                        cut.in_shared);
    if (status == KERNEL_OK)
        status = launch_parameters<N>(stream, partial, cut, args.dweight, args.dweight_dtype, args.cols,
                                      args.accumulate_dweight);
    if (status == KERNEL_OK)
        status = launch_parameters<N>(stream, partial + cut.padded, cut, args.dbias, args.dbias_dtype, args.cols,
                                      args.accumulate_dbias);
    return status;
}

} // namespace

size_t kernel_norm_backward_scratch(size_t rows, size_t cols)
{
    const norm_cut cut = cut_of(rows, cols);

    return cut.partials * 2 * cut.padded * sizeof(float);
}

int kernel_norm_backward(struct CUstream_st *stream, const struct kernel_norm_backward_args *norm, void *scratch)
{
    if (norm->cols == 0)
        return KERNEL_OK;
    return by_dtype(norm->dtype, [&](auto type) {
        using T = decltype(type);

        if (norm->cols % pack<T>::N == 0 && is_packed(norm->dy) && is_packed(norm->x) && is_packed(norm->weight) &&
            is_packed(norm->dx))
            return launch_gradient<T, pack<T>::N>(stream, *norm, static_cast<float *>(scratch));
        return launch_gradient<T, 1>(stream, *norm, static_cast<float *>(scratch));
    });
}
