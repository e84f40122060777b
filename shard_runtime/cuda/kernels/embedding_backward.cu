/*
 * Backward of the embedding without atomics. The rows are sorted by (token, row): tiles by a bitonic network in shared
 * memory (Batcher, 1968), then runs merged two by two, each key finding its place in the other run by bisection (all
 * keys differ, so places do). A run of one token then has one block, which adds its rows in order.
 */
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

enum { SORT_THREADS = 256, TILE = 1024, SUM_THREADS = 128 };

/* token above, row below: one comparison orders both. */
__device__ __forceinline__ uint64_t key_of(int32_t token, size_t row)
{
    return static_cast<uint64_t>(static_cast<uint32_t>(token)) << 32 | static_cast<uint32_t>(row);
}

__global__ void __launch_bounds__(SORT_THREADS) sort_tiles(const int32_t *tokens, uint64_t *keys, size_t rows)
{
    const size_t first = static_cast<size_t>(blockIdx.x) * TILE;
    uint64_t *room = block_shared<uint64_t>();

    for (unsigned i = threadIdx.x; i < TILE; i += SORT_THREADS)
        room[i] = first + i < rows ? key_of(tokens[first + i], first + i) : ~static_cast<uint64_t>(0);
    for (unsigned size = 2; size <= TILE; size *= 2) {
        for (unsigned stride = size / 2; stride > 0; stride /= 2) {
            block_barrier();
            for (unsigned pair = threadIdx.x; pair < TILE / 2; pair += SORT_THREADS) {
                const unsigned low = pair / stride * 2 * stride + pair % stride, high = low + stride;
                const bool rising = (low & size) == 0;
                const uint64_t a = room[low], b = room[high];

                if ((a > b) == rising) {
                    room[low] = b;
                    room[high] = a;
                }
            }
        }
    }
    block_barrier();
    for (unsigned i = threadIdx.x; i < TILE && first + i < rows; i += SORT_THREADS)
        keys[first + i] = room[i];
}

/* Runs of `length` keys from `from`, two and two into runs of twice that in `to`. */
__global__ void __launch_bounds__(SORT_THREADS) merge_runs(const uint64_t *from, uint64_t *to, size_t rows, size_t length)
{
    const size_t i = static_cast<size_t>(blockIdx.x) * SORT_THREADS + threadIdx.x;
    size_t run, other, low, high;
    uint64_t key;

    if (i >= rows)
        return;
    key = from[i];
    run = i / length * length;
    other = i / length % 2 == 0 ? run + length : run - length;
    low = other < rows ? other : rows;
    high = other + length < rows ? other + length : rows;
    while (low < high) { /* how many of the other run's keys are below this one */
        const size_t middle = low + (high - low) / 2;

        if (from[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    other = other < rows ? other : rows;
    to[(run < other ? run : other) + (i - run) + (low - other)] = key;
}

template <class T, class G>
__global__ void __launch_bounds__(SUM_THREADS) sum_runs(const uint64_t *keys, const T *dout, G *dtable, size_t rows,
                                                        size_t cols)
{
    const size_t first = blockIdx.x;
    const uint32_t token = static_cast<uint32_t>(keys[first] >> 32);

    if (first > 0 && static_cast<uint32_t>(keys[first - 1] >> 32) == token)
        return; /* the block of the run's first row has it; the whole block goes */
    for (size_t j = threadIdx.x; j < cols; j += SUM_THREADS) {
        G *to = dtable + static_cast<size_t>(token) * cols + j;
        float sum = widen(*to);

        for (size_t k = first; k < rows && static_cast<uint32_t>(keys[k] >> 32) == token; k++)
            sum = plus(sum, widen(dout[static_cast<size_t>(static_cast<uint32_t>(keys[k])) * cols + j]));
        narrow(sum, to);
    }
}

template <class T, class G>
__global__ void __launch_bounds__(SUM_THREADS) sum_positions(const T *dout, G *dpositions, size_t rows, size_t cols,
                                                             size_t seq)
{
    for (size_t j = threadIdx.x; j < cols; j += SUM_THREADS) {
        G *to = dpositions + blockIdx.x * cols + j;
        double sum = static_cast<double>(widen(*to));

        for (size_t i = blockIdx.x; i < rows; i += seq)
            sum += static_cast<double>(widen(dout[i * cols + j]));
        narrow(static_cast<float>(sum), to);
    }
}

/* Sorts into one of the two halves of scratch, and says which. */
int sort_rows(struct CUstream_st *stream, const int32_t *tokens, size_t rows, uint64_t *scratch, uint64_t **sorted)
{
    uint64_t *from = scratch, *to = scratch + rows;
    int status = LAUNCH(sort_tiles, blocks_of(rows, TILE), SORT_THREADS, TILE * sizeof(uint64_t), stream, tokens, from,
                        rows);

    for (size_t length = TILE; length < rows && status == KERNEL_OK; length *= 2) {
        uint64_t *kept = from;

        status = LAUNCH(merge_runs, blocks_of(rows, SORT_THREADS), SORT_THREADS, 0, stream, from, to, rows, length);
        from = to;
        to = kept;
    }
    *sorted = from;
    return status;
}

template <class T, class G>
int launch_sums(struct CUstream_st *stream, const int32_t *tokens, const T *dout, G *dtable, G *dpositions, size_t rows,
                size_t cols, size_t seq, uint64_t *scratch)
{
    uint64_t *keys;
    int status = KERNEL_OK;

    if (dtable != NULL) {
        status = sort_rows(stream, tokens, rows, scratch, &keys);
        if (status == KERNEL_OK)
            status = LAUNCH((sum_runs<T, G>), static_cast<unsigned>(rows), SUM_THREADS, 0, stream, keys, dout, dtable,
                            rows, cols);
    }
    if (status == KERNEL_OK && dpositions != NULL)
        status = LAUNCH((sum_positions<T, G>), static_cast<unsigned>(seq), SUM_THREADS, 0, stream, dout, dpositions,
                        rows, cols, seq);
    return status;
}

} // namespace

size_t kernel_embedding_backward_scratch(size_t rows)
{
    return 2 * rows * sizeof(uint64_t);
}

int kernel_embedding_backward(struct CUstream_st *stream, const int32_t *tokens, const void *dout, enum fsdp_dtype dtype,
                              void *dtable, void *dpositions, enum fsdp_dtype grad_dtype, size_t rows, size_t cols,
                              size_t seq, void *scratch)
{
    if (rows > INT32_MAX)
        return KERNEL_INVALID;
    if (rows == 0 || cols == 0)
        return KERNEL_OK;
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        return by_dtype(grad_dtype, [&](auto grad_type) {
            using G = decltype(grad_type);

            return launch_sums(stream, tokens, static_cast<const T *>(dout), static_cast<G *>(dtable),
                               static_cast<G *>(dpositions), rows, cols, seq, static_cast<uint64_t *>(scratch));
        });
    });
}
