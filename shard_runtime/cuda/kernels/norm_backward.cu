/*
 * Backward of LayerNorm and RMSNorm. With xhat = (x - mean) * rstd (mean 0 for RMSNorm) and g = dy * weight,
 *   dx = rstd * (g - mean_j(g) - xhat * mean_j(g * xhat))        (RMSNorm: without mean_j(g))
 *   dweight_j = sum over rows of dy * xhat                        dbias_j = sum over rows of dy
 * A team of threads owns a row: a warp where rows are short, a block where they are long. It owns every n-th
 * row, writes dx, and adds to its own float32 sums of dweight and dbias. These are in shared memory. So are
 * the weight and the row between its two passes, and dy and x are read once from global memory. Each block
 * writes its sums to scratch once, at its end; a second kernel adds the blocks' sums in order, in double.
 */
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

enum { LONG_ROW_THREADS = 256, TOTAL_WARPS = 8, MANY_TOTAL_WARPS = 32 };

static_assert(+CUDA_NORM_TEAMS == +ROW_WARPS && CUDA_NORM_TILE == WARP * 8,
              "cut for warps and packs as they are");

/*
 * How the work is divided. It depends on rows and cols; the shared memory that a block may have decides where
 * sums and rows are kept.
 */
struct norm_cut {
    unsigned blocks, threads;
    unsigned teams; /* of a block */
    size_t padded;  /* cols, rounded up to what a warp takes at once */
    /* the teams' sums are in shared memory; if not, a block has one team, whose sums are in scratch */
    bool in_shared;
    size_t shared_bytes;
};

norm_cut cut_of(const struct numerics_norm_backward &args, size_t shared_bytes)
{
    const struct cuda_norm_cut shape = cuda_norm_cut_of(args.rows, args.cols);
    norm_cut cut;

    cut.padded = shape.padded;
    cut.teams = static_cast<unsigned>(shape.teams);
    cut.threads = static_cast<unsigned>(cut.teams == 1 ? +LONG_ROW_THREADS : +ROW_THREADS);
    cut.blocks = static_cast<unsigned>(shape.blocks);
    cut.shared_bytes = shared_bytes < CUDA_NORM_SHARED_BYTES ? shared_bytes : +CUDA_NORM_SHARED_BYTES;
    cut.in_shared =
        cut.threads / WARP * sizeof(double) + cut.teams * 2 * cut.padded * sizeof(float) <= cut.shared_bytes;
    return cut;
}

/*
 * Returns the place of column j in a team's sums. The i-th elements of all lanes are side by side, so no two
 * lanes share a bank.
 */
template <int N> __device__ __forceinline__ size_t slot_of(size_t j)
{
    const size_t tile = j / (WARP * N) * (WARP * N), within = j - tile;

    return tile + within % N * WARP + within / N;
}

template <int N> __device__ __forceinline__ size_t column_of(size_t slot)
{
    const size_t tile = slot / (WARP * N) * (WARP * N), within = slot - tile;

    return tile + within % WARP * N + within / WARP;
}

template <class T> struct norm_gradient {
    const T *dy, *x, *weight;
    const float *mean, *rstd;
    T *dx;
    size_t rows, cols;
    bool accumulate_dx, dweight, dbias;
};

/*
 * What a team works with. Shared memory: double room[warps], the teams' runs, weight[cols], a row of dy and x
 * for each team.
 */
template <class T> struct norm_team {
    unsigned thread, threads;
    float *run; /* in shared memory or in scratch */
    double *room;
    const T *weight; /* there, or global */
    T *dy, *x;       /* the row, where it is kept */
};

template <int N, class T, class F>
__device__ __forceinline__ void team_each(const norm_team<T> &team, size_t cols, F f)
{
    for (size_t j = static_cast<size_t>(team.thread) * N; j < cols;
         j += static_cast<size_t>(team.threads) * N)
        f(j);
}

template <class T>
__device__ __forceinline__ float team_mean(const norm_team<T> &team, float sum, size_t cols)
{
    const double value = static_cast<double>(sum);
    const double total = team.threads == WARP ? warp_sum(value) : block_reduce(value, team.room, take_sum());

    return static_cast<float>(total / static_cast<double>(cols));
}

template <class T, int N, bool KEPT>
__device__ void row_gradient(const norm_gradient<T> &norm, size_t row, const norm_team<T> &team,
                             size_t padded)
{
    const size_t at = row * norm.cols;
    const float mean = norm.mean == NULL ? 0.0f : norm.mean[row], rstd = norm.rstd[row];
    float sum_g = 0, sum_gx = 0, mean_g, mean_gx;

    team_each<N>(team, norm.cols, [&](size_t j) {
        const group<T, N> x = load_group<N>(norm.x + at + j), dy = load_group<N>(norm.dy + at + j);
        const group<T, N> w = load_group<N>(team.weight + j);

        if (KEPT) {
            store_group<N>(team.x + j, x);
            store_group<N>(team.dy + j, dy);
        }
        for (int i = 0; i < N; i++) {
            const float xhat = (widen(x.at[i]) - mean) * rstd, g = widen(dy.at[i]) * widen(w.at[i]);

            sum_g += g;
            sum_gx += g * xhat;
            if (norm.dweight)
                team.run[slot_of<N>(j + i)] += widen(dy.at[i]) * xhat;
            if (norm.dbias)
                team.run[padded + slot_of<N>(j + i)] += widen(dy.at[i]);
        }
    });
    if (norm.dx == NULL)
        return; /* the whole block */
    mean_g = norm.mean == NULL ? 0.0f : team_mean(team, sum_g, norm.cols);
    mean_gx = team_mean(team, sum_gx, norm.cols);
    team_each<N>(team, norm.cols, [&](size_t j) {
        const group<T, N> x = load_group<N>(KEPT ? team.x + j : norm.x + at + j);
        const group<T, N> dy = load_group<N>(KEPT ? team.dy + j : norm.dy + at + j);
        const group<T, N> w = load_group<N>(team.weight + j);
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

template <class T, int N, bool KEPT>
__global__ void __launch_bounds__(LONG_ROW_THREADS)
    norm_rows(norm_gradient<T> norm, float *partial, norm_cut cut)
{
    const size_t run_size = 2 * cut.padded, runs = cut.in_shared ? cut.teams * run_size : 0;
    const unsigned threads = blockDim.x / cut.teams, index = threadIdx.x / threads;
    double *room = block_shared<double>();
    float *shared_runs = reinterpret_cast<float *>(room + blockDim.x / WARP);
    float *own = cut.in_shared ? shared_runs : partial + blockIdx.x * run_size; /* the block's */
    T *weight = reinterpret_cast<T *>(shared_runs + runs), *rows = weight + norm.cols + index * 2 * norm.cols;
    const norm_team<T> team = { threadIdx.x % threads,       threads, own + index * run_size, room,
                                KEPT ? weight : norm.weight, rows,    rows + norm.cols };

    for (size_t k = threadIdx.x; k < cut.teams * run_size; k += blockDim.x)
        own[k] = 0;
    for (size_t j = threadIdx.x; KEPT && j < norm.cols; j += blockDim.x)
        weight[j] = norm.weight[j];
    block_barrier();
    for (size_t row = static_cast<size_t>(blockIdx.x) * cut.teams + index; row < norm.rows;
         row += static_cast<size_t>(gridDim.x) * cut.teams)
        row_gradient<T, N, KEPT>(norm, row, team, cut.padded);
    if (!cut.in_shared)
        return; /* the whole block */
    block_barrier();
    for (size_t k = threadIdx.x; k < run_size; k += blockDim.x) {
        float sum = 0;

        for (unsigned t = 0; t < cut.teams; t++)
            sum += shared_runs[t * run_size + k];
        if (k < cut.padded ? norm.dweight : norm.dbias)
            partial[blockIdx.x * run_size + k] = sum;
    }
}

/*
 * One block adds 32 columns over all runs: each warp adds some of the runs, then one warp adds the warps'
 * sums, in order.
 */
template <int N, class O>
__global__ void __launch_bounds__(MANY_TOTAL_WARPS *WARP)
    norm_parameters(const float *partial, size_t partials, size_t run_size, O *out, size_t cols,
                    bool accumulate)
{
    const size_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const size_t slot = static_cast<size_t>(blockIdx.x) * WARP + lane, j = column_of<N>(slot);
    const size_t warps = blockDim.x / WARP, stretch = (partials + warps - 1) / warps, first = warp * stretch;
    double *room = block_shared<double>(), sum = 0;

    for (size_t p = first; p < first + stretch && p < partials; p++)
        sum += static_cast<double>(partial[p * run_size + slot]);
    room[threadIdx.x] = sum;
    block_barrier();
    if (warp != 0 || j >= cols)
        return;
    sum = accumulate ? static_cast<double>(widen(out[j])) : 0.0;
    for (size_t w = 0; w < warps; w++)
        sum += room[w * WARP + lane];
    narrow(static_cast<float>(sum), &out[j]);
}

template <int N>
int launch_parameters(struct CUstream_st *stream, const float *partial, const norm_cut &cut, void *out,
                      enum fsdp_dtype dtype, size_t cols, bool accumulate)
{
    const unsigned threads = (cut.blocks < CUDA_NORM_FEW_BLOCKS ? +TOTAL_WARPS : +MANY_TOTAL_WARPS) * WARP;

    if (out == NULL)
        return KERNEL_OK;
    return by_dtype(dtype, [&](auto type) {
        using O = decltype(type);

        return LAUNCH((norm_parameters<N, O>), static_cast<unsigned>(cut.padded / WARP), threads,
                      threads * sizeof(double), stream, partial, cut.blocks, 2 * cut.padded,
                      static_cast<O *>(out), cols, accumulate);
    });
}

template <class T, int N>
int launch_rows(struct CUstream_st *stream, const norm_gradient<T> &norm, float *partial, const norm_cut &cut)
{
    const size_t runs = cut.in_shared ? cut.teams * 2 * cut.padded * sizeof(float) : 0;
    const size_t room = cut.threads / WARP * sizeof(double), shared = room + runs;
    const size_t kept = shared + (1 + 2 * cut.teams) * norm.cols * sizeof(T);

    if (kept <= cut.shared_bytes)
        return LAUNCH((norm_rows<T, N, true>), cut.blocks, cut.threads, kept, stream, norm, partial, cut);
    return LAUNCH((norm_rows<T, N, false>), cut.blocks, cut.threads, shared, stream, norm, partial, cut);
}

template <class T, int N>
int launch_gradient(struct CUstream_st *stream, const struct numerics_norm_backward &args,
                    size_t shared_bytes, float *partial)
{
    const norm_cut cut = cut_of(args, shared_bytes);
    const norm_gradient<T> norm = { static_cast<const T *>(args.dy),
                                    static_cast<const T *>(args.x),
                                    static_cast<const T *>(args.weight),
                                    args.mean,
                                    args.rstd,
                                    static_cast<T *>(args.dx),
                                    args.rows,
                                    args.cols,
                                    args.accumulate_dx,
                                    args.dweight != NULL,
                                    args.dbias != NULL };
    int status = KERNEL_OK;

    if (args.rows > 0)
        status = launch_rows<T, N>(stream, norm, partial, cut);
    if (status == KERNEL_OK)
        status = launch_parameters<N>(stream, partial, cut, args.dweight, args.dweight_dtype, args.cols,
                                      args.accumulate_dweight);
    if (status == KERNEL_OK)
        status = launch_parameters<N>(stream, partial + cut.padded, cut, args.dbias, args.dbias_dtype,
                                      args.cols, args.accumulate_dbias);
    return status;
}

} // namespace

int kernel_norm_backward(struct CUstream_st *stream, const struct numerics_norm_backward *norm,
                         size_t shared_bytes, void *scratch)
{
    if (norm->cols == 0)
        return KERNEL_OK;
    if (shared_bytes < CUDA_LEAST_SHARED_BYTES)
        return KERNEL_INVALID;
    return by_dtype(norm->dtype, [&](auto type) {
        using T = decltype(type);

        if (norm->cols % pack<T>::N == 0 && is_packed(norm->dy) && is_packed(norm->x) &&
            is_packed(norm->weight) && is_packed(norm->dx))
            return launch_gradient<T, pack<T>::N>(stream, *norm, shared_bytes, static_cast<float *>(scratch));
        return launch_gradient<T, 1>(stream, *norm, shared_bytes, static_cast<float *>(scratch));
    });
}
