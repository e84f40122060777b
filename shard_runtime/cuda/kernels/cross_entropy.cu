/*
 * Softmax and cross-entropy in one: a block owns a row of logits. The first walk finds the largest and the
 * sum of exponentials together (Milakov and Gimelshein, 2018). It keeps as much of the row in shared memory
 * as fits. The second reads it there and writes the gradient, which may overwrite the logits. Each row's loss
 * goes to scratch; one last block adds them in order.
 */
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

enum { LOSS_THREADS = 512, TOTAL_THREADS = 256, IGNORED = -100 /* torch's ignore_index */ };

/*
 * Returns exp(value - largest); 0 if no value was seen yet. For bfloat16 the fast exp is exact enough,
 * because the logit itself is off by 2^-9.
 */
template <class T> __device__ __forceinline__ float share_of(float value, float largest)
{
    if (value == -INFINITY)
        return 0.0f;
    return sizeof(T) == 2 ? quick_exp2((value - largest) * LOG2_E) : expf(value - largest);
}

/*
 * Calls f for the calling thread's groups of the columns [0, cols). A thread gets the same groups in each
 * call.
 */
template <int N, class F> __device__ __forceinline__ void block_each(size_t cols, F f)
{
    for (size_t j = static_cast<size_t>(threadIdx.x) * N; j < cols; j += LOSS_THREADS * N)
        f(j);
}

/* What the launch is given. */
template <class T> struct loss_rows_of {
    const T *logits;
    const int32_t *targets;
    T *dlogits;
    /* kept: how many columns, from the first on, shared memory keeps; whole groups only */
    size_t vocab, stride, kept;
    float scale;
    double *losses;
};

/* A group of elements in shared memory, which is read and written at once. */
template <class T, int N> struct alignas(N * sizeof(T)) kept_group {
    group<T, N> at;
};

/*
 * Takes the first `n` logits of a group into the thread's largest so far, and into the sum of exponentials
 * relative to it.
 */
template <class T, int N>
__device__ __forceinline__ void add_group(const group<T, N> &x, size_t n, float *largest, float *sum)
{
    float most = *largest;

    for (size_t i = 0; i < N && i < n; i++)
        most = larger(widen(x.at[i]), most);
    if (most != *largest) { /* a NaN too */
        *sum *= share_of<T>(*largest, most);
        *largest = most;
    }
    for (size_t i = 0; i < N && i < n; i++)
        *sum += share_of<T>(widen(x.at[i]), most);
}

template <class T, int N>
__global__ void __launch_bounds__(LOSS_THREADS) loss_rows(const loss_rows_of<T> rows)
{
    const T *logits = rows.logits + blockIdx.x * rows.stride;
    T *dlogits = rows.dlogits == NULL ? NULL : rows.dlogits + blockIdx.x * rows.stride;
    const int32_t target = rows.targets[blockIdx.x];
    double *room = block_shared<double>(), total;
    kept_group<T, N> *cache = reinterpret_cast<kept_group<T, N> *>(room + LOSS_THREADS / WARP);
    float largest = -INFINITY, sum = 0, block_largest, at_target = 0, inverse;
    int vocab;

    if (target == IGNORED) { /* the whole block */
        const group<T, N> zeros = {};

        block_each<N>(dlogits != NULL ? rows.stride : 0,
                      [&](size_t j) { store_group<N>(dlogits + j, zeros); });
        if (threadIdx.x == 0)
            rows.losses[blockIdx.x] = 0;
        return;
    }
    block_each<N>(rows.vocab, [&](size_t j) {
        const group<T, N> x = load_group<N>(logits + j);

        if (j < rows.kept)
            cache[j / N].at = x;
        add_group(x, rows.vocab - j, &largest, &sum);
    });
    if (threadIdx.x == 0)
        /* read before the barrier, because other threads write there after it */
        at_target = widen(logits[target]);
    block_largest = static_cast<float>(block_reduce(static_cast<double>(largest), room, take_largest()));
    total = block_reduce(static_cast<double>(sum) * static_cast<double>(share_of<T>(largest, block_largest)),
                         room, take_sum());
    if (threadIdx.x == 0)
        rows.losses[blockIdx.x] =
            log(total) - (static_cast<double>(at_target) - static_cast<double>(block_largest));
    if (dlogits == NULL)
        return;
    inverse = static_cast<float>(1.0 / total);
    vocab = static_cast<int>(rows.vocab); /* an int32_t target is below it */
    block_each<N>(rows.stride, [&](size_t j) {
        const int column = static_cast<int>(j);
        group<T, N> x = {}, d;

        if (j < rows.kept)
            x = cache[j / N].at;
        else if (j < rows.vocab)
            x = load_group<N>(logits + j);
        for (int i = 0; i < N; i++) {
            const float p = share_of<T>(widen(x.at[i]), block_largest) * inverse;
            const float hit = column + i == target ? 1.0f : 0.0f;

            narrow(column + i < vocab ? (p - hit) * rows.scale : 0.0f, &d.at[i]);
        }
        store_group<N>(dlogits + j, d);
    });
}

__global__ void __launch_bounds__(TOTAL_THREADS)
    loss_total(const double *losses, const int32_t *targets, size_t rows, double *loss_sum,
               uint64_t *n_targets)
{
    const size_t run = (rows + TOTAL_THREADS - 1) / TOTAL_THREADS, first = threadIdx.x * run;
    double *room = block_shared<double>(), sum = 0, count = 0; /* a double counts exactly to 2^53 */

    for (size_t i = first; i < first + run && i < rows; i++) {
        sum += losses[i];
        count += targets[i] == IGNORED ? 0 : 1;
    }
    sum = block_reduce(sum, room, take_sum());
    count = block_reduce(count, room, take_sum());
    if (threadIdx.x == 0) {
        *loss_sum += sum;
        *n_targets += static_cast<uint64_t>(count);
    }
}

} // namespace

template <class T, int N>
static int launch_rows(struct CUstream_st *stream, const struct numerics_cross_entropy *loss, double *losses)
{
    const size_t wanted = loss->dlogits == NULL ? 0 : (loss->vocab + N - 1) / N * N,
                 most = KERNEL_LOSS_CACHE_BYTES / sizeof(T) / N * N, kept = wanted < most ? wanted : most;
    const loss_rows_of<T> rows = { static_cast<const T *>(loss->logits),
                                   loss->targets,
                                   static_cast<T *>(loss->dlogits),
                                   loss->vocab,
                                   loss->row_stride,
                                   kept,
                                   loss->scale,
                                   losses };

    return LAUNCH((loss_rows<T, N>), static_cast<unsigned>(loss->rows), LOSS_THREADS,
                  LOSS_THREADS / WARP * sizeof(double) + kept * sizeof(T), stream, rows);
}

int kernel_cross_entropy(struct CUstream_st *stream, const struct numerics_cross_entropy *loss,
                         double *loss_sum, uint64_t *n_targets, void *scratch)
{
    double *losses = static_cast<double *>(scratch);
    int status;

    if (loss->rows > INT32_MAX || loss->row_stride < loss->vocab || (loss->rows > 0 && loss->vocab == 0))
        return KERNEL_INVALID;
    if (loss->rows == 0)
        return KERNEL_OK;
    status = by_dtype(loss->dtype, [&](auto type) {
        using T = decltype(type);

        return loss->row_stride % pack<T>::N == 0 && is_packed(loss->logits) && is_packed(loss->dlogits)
                   ? launch_rows<T, pack<T>::N>(stream, loss, losses)
                   : launch_rows<T, 1>(stream, loss, losses);
    });
    if (status != KERNEL_OK)
        return status;
    return LAUNCH(loss_total, 1, TOTAL_THREADS, TOTAL_THREADS / WARP * sizeof(double), stream, losses,
                  loss->targets, loss->rows, loss_sum, n_targets);
}
