/*
 * Softmax and cross-entropy in one: a block owns a row of logits. The first walk finds the largest and the sum of
 * exponentials together (Milakov and Gimelshein, 2018), the second writes the gradient where the logits were. Each
 * row's loss goes to scratch; one last block adds them in order.
 */
#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

enum { LOSS_THREADS = 512, TOTAL_THREADS = 256, IGNORED = -100 /* torch's ignore_index */ };

/* exp(value - largest), of which nothing is left where nothing was seen. */
__device__ __forceinline__ float share_of(float value, float largest)
{
    return value == -INFINITY ? 0.0f : expf(value - largest);
}

template <class T, int N, class F>
__device__ __forceinline__ void block_each(size_t cols, F f)
{
    for (size_t j = static_cast<size_t>(threadIdx.x) * N; j < cols; j += LOSS_THREADS * N)
        f(j);
}

template <class T, int N>
__global__ void __launch_bounds__(LOSS_THREADS) loss_rows(const T *logits, const int32_t *targets, T *dlogits,
                                                          size_t vocab, float scale, double *losses)
{
    const size_t at = blockIdx.x * vocab;
    const int32_t target = targets[blockIdx.x];
    double *room = block_shared<double>(), total;
    float largest = -INFINITY, sum = 0, block_largest, at_target, inverse;

    if (target == IGNORED) { /* the whole block */
        for (size_t j = threadIdx.x; dlogits != NULL && j < vocab; j += LOSS_THREADS)
            narrow(0.0f, &dlogits[at + j]);
        if (threadIdx.x == 0)
            losses[blockIdx.x] = 0;
        return;
    }
    block_each<T, N>(vocab, [&](size_t j) {
        const group<T, N> x = load_group<N>(logits + at + j);

        for (int i = 0; i < N; i++) {
            const float value = widen(x.at[i]);

            if (value > largest || isnan(value)) {
                sum = sum * share_of(largest, value) + 1.0f;
                largest = value;
            } else {
                sum += share_of(value, largest);
            }
        }
    });
    at_target = widen(logits[at + static_cast<size_t>(target)]); /* before anybody writes there */
    block_largest = static_cast<float>(block_reduce(static_cast<double>(largest), room, take_largest()));
    total = block_reduce(static_cast<double>(sum) * static_cast<double>(share_of(largest, block_largest)), room,
                         take_sum());
    if (threadIdx.x == 0)
        losses[blockIdx.x] = log(total) - (static_cast<double>(at_target) - static_cast<double>(block_largest));
    if (dlogits == NULL)
        return;
    inverse = static_cast<float>(1.0 / total);
    block_each<T, N>(vocab, [&](size_t j) {
        const group<T, N> x = load_group<N>(logits + at + j);
        group<T, N> d;

        for (int i = 0; i < N; i++) {
            const float p = share_of(widen(x.at[i]), block_largest) * inverse;

            narrow((p - (j + static_cast<size_t>(i) == static_cast<size_t>(target) ? 1.0f : 0.0f)) * scale, &d.at[i]);
        }
        store_group<N>(dlogits + at + j, d);
    });
}

__global__ void __launch_bounds__(TOTAL_THREADS) loss_total(const double *losses, const int32_t *targets, size_t rows,
                                                            double *loss_sum, uint64_t *n_targets)
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

size_t kernel_cross_entropy_scratch(size_t rows)
{
    return rows * sizeof(double);
}

int kernel_cross_entropy(struct CUstream_st *stream, const void *logits, enum fsdp_dtype dtype, const int32_t *targets,
                         void *dlogits, size_t rows, size_t vocab, float scale, double *loss_sum, uint64_t *n_targets,
                         void *scratch)
{
    double *losses = static_cast<double *>(scratch);
    const size_t room = LOSS_THREADS / WARP * sizeof(double);
    int status;

    if (rows > INT32_MAX || (rows > 0 && vocab == 0))
        return KERNEL_INVALID;
    if (rows == 0)
        return KERNEL_OK;
    status = by_dtype(dtype, [&](auto type) {
        using T = decltype(type);
        const T *x = static_cast<const T *>(logits);
        T *d = static_cast<T *>(dlogits);

        if (vocab % pack<T>::N == 0 && is_packed(logits) && is_packed(dlogits))
            return LAUNCH((loss_rows<T, pack<T>::N>), static_cast<unsigned>(rows), LOSS_THREADS, room, stream, x,
                          targets, d, vocab, scale, losses);
        return LAUNCH((loss_rows<T, 1>), static_cast<unsigned>(rows), LOSS_THREADS, room, stream, x, targets, d, vocab,
                      scale, losses);
    });
    if (status != KERNEL_OK)
        return status;
    return LAUNCH(loss_total, 1, TOTAL_THREADS, TOTAL_THREADS / WARP * sizeof(double), stream, losses, targets, rows,
                  loss_sum, n_targets);
}
