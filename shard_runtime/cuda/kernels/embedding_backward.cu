/*
 * Backward of the embedding without atomics. The rows are sorted by (token, row). Tiles are sorted by a
 * bitonic network in shared memory (Batcher, 1968). Then runs are merged two by two: each key finds its place
 * in the other run by bisection. All keys differ, so places do too.
 *
 * A run of one token is cut into pieces of 32 rows, counted from its first. So a frequent token is work for
 * many blocks, and its bits depend on its own rows alone. A block adds the pieces that begin among its 32
 * sorted keys, each in row order. The sum of a run of one piece goes into the table at once. Pieces of longer
 * runs go to scratch, and a second kernel adds them in order.
 */
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

enum { SORT_THREADS = 256, TILE = 1024, SUM_THREADS = 256, PIECE = CUDA_EMBEDDING_PIECE_ROWS, AHEAD = 8 };

/* The token is in the upper half and the row in the lower one, so one comparison orders by both. */
__device__ __forceinline__ uint64_t key_of(int32_t token, size_t row)
{
    return static_cast<uint64_t>(static_cast<uint32_t>(token)) << 32 | static_cast<uint32_t>(row);
}

__device__ __forceinline__ uint32_t token_of(uint64_t key)
{
    return static_cast<uint32_t>(key >> 32);
}

__device__ __forceinline__ size_t row_of(uint64_t key)
{
    return static_cast<uint32_t>(key);
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

/* Merges runs of `length` keys in `from`, two at a time, into runs of twice that length in `to`. */
__global__ void __launch_bounds__(SORT_THREADS)
    merge_runs(const uint64_t *from, uint64_t *to, size_t rows, size_t length)
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
    while (low < high) { /* finds how many keys of the other run are below this one */
        const size_t middle = low + (high - low) / 2;

        if (from[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    other = other < rows ? other : rows;
    to[(run < other ? run : other) + (i - run) + (low - other)] = key;
}

/* Where the run of keys[at] begins. */
__device__ size_t run_begin(const uint64_t *keys, size_t at)
{
    const uint64_t first = keys[at] >> 32 << 32;
    size_t low = 0, high = at;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (keys[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * Of a block's PIECE keys: part [0] belongs to a run that began before them; part [1] begins the first run
 * among them that has more than one piece.
 */
__device__ __forceinline__ size_t part_of(size_t block, bool begins)
{
    return 2 * block + (begins ? 1 : 0);
}

/*
 * Adds the first AHEAD rows (or n, if that is less) to `sum`, in order. All loads are begun before the first
 * row is added.
 */
template <int N, class T>
__device__ __forceinline__ void add_rows(group<float, N> &sum, const uint64_t *key, int n, const T *from,
                                         size_t cols)
{
    group<T, N> terms[AHEAD];

    UNROLL
    for (int r = 0; r < AHEAD; r++)
        if (r < n)
            terms[r] = load_group<N>(from + row_of(key[r]) * cols);
    UNROLL
    for (int r = 0; r < AHEAD; r++)
        for (int i = 0; r < n && i < N; i++)
            sum.at[i] = plus(sum.at[i], widen(terms[r].at[i]));
}

template <class T, class G, int N>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_pieces(const uint64_t *keys, const T *dout, G *dtable, float *parts, size_t rows, size_t cols)
{
    const size_t first = static_cast<size_t>(blockIdx.x) * PIECE;
    const size_t j = (static_cast<size_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    /* 2 PIECE keys, because the last piece may end among the keys of the next block */
    uint64_t *key = block_shared<uint64_t>();
    bool is_later; /* the block's first keys belong to a run that began in an earlier block */
    uint32_t token;
    int k = 0;

    for (unsigned i = threadIdx.x; i < 2 * PIECE; i += blockDim.x)
        key[i] = first + i < rows ? keys[first + i] : ~static_cast<uint64_t>(0); /* no token */
    block_barrier();
    if (j >= cols)
        return;
    token = token_of(key[0]);
    is_later = first > 0 && token_of(keys[first - 1]) == token;
    if (is_later) {
        const int of_piece = static_cast<int>((first - run_begin(keys, first)) % PIECE);

        while (of_piece > 0 && k < PIECE - of_piece && token_of(key[k]) == token)
            k++; /* of a piece that began before */
    }
    while (k < PIECE && first + k < rows) {
        int end = k;
        bool begins, is_part;
        group<float, N> sum = {};

        begins = !is_later || token_of(key[k]) != token;
        token = token_of(key[k]);
        while (end < k + PIECE && token_of(key[end]) == token)
            end++;
        is_part = !begins || (end == k + PIECE && token_of(key[end]) == token);
        if (!is_part) {
            const group<G, N> old = load_group<N>(dtable + static_cast<size_t>(token) * cols + j);

            for (int i = 0; i < N; i++)
                sum.at[i] = widen(old.at[i]);
        }
        for (int at = k; at < end; at += AHEAD)
            add_rows<N>(sum, key + at, end - at, dout + j, cols);
        if (is_part) {
            store_group<N>(parts + part_of(blockIdx.x, begins) * cols + j, sum);
        } else {
            group<G, N> to;

            for (int i = 0; i < N; i++)
                narrow(sum.at[i], &to.at[i]);
            store_group<N>(dtable + static_cast<size_t>(token) * cols + j, to);
        }
        is_later = false;
        k = end;
    }
}

/*
 * Adds the pieces of the run that begins among the block's keys and has more than one piece. There is at most
 * one such run.
 */
template <class G, int N>
__global__ void __launch_bounds__(SUM_THREADS)
    add_pieces(const uint64_t *keys, const float *parts, G *dtable, size_t rows, size_t cols)
{
    const size_t first = static_cast<size_t>(blockIdx.x) * PIECE, next = first + PIECE;
    const size_t j = (static_cast<size_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    double sum[N];
    uint32_t token;
    size_t begin;
    group<G, N> to;
    G *at;

    if (next >= rows || j >= cols || token_of(keys[next]) != token_of(keys[next - 1]))
        return;
    token = token_of(keys[next]);
    begin = run_begin(keys, next);
    if (begin < first || begin + PIECE >= rows || token_of(keys[begin + PIECE]) != token)
        return;
    at = dtable + static_cast<size_t>(token) * cols + j;
    to = load_group<N>(at);
    for (int i = 0; i < N; i++)
        sum[i] = static_cast<double>(widen(to.at[i]));
    for (size_t k = begin; k < rows && token_of(keys[k]) == token; k += PIECE) {
        const group<float, N> part = load_group<N>(parts + part_of(k / PIECE, k == begin) * cols + j);

        for (int i = 0; i < N; i++)
            sum[i] += static_cast<double>(part.at[i]);
    }
    for (int i = 0; i < N; i++)
        narrow(static_cast<float>(sum[i]), &to.at[i]);
    store_group<N>(at, to);
}

template <class T, class G, int N>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_positions(const T *dout, G *dpositions, size_t rows, size_t cols, size_t seq)
{
    const size_t j = (static_cast<size_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    double sum[N];
    group<G, N> to;

    if (j >= cols)
        return;
    to = load_group<N>(dpositions + blockIdx.x * cols + j);
    for (int i = 0; i < N; i++)
        sum[i] = static_cast<double>(widen(to.at[i]));
    UNROLL
    for (size_t row = blockIdx.x; row < rows; row += seq) {
        const group<T, N> term = load_group<N>(dout + row * cols + j);

        for (int i = 0; i < N; i++)
            sum[i] += static_cast<double>(widen(term.at[i]));
    }
    for (int i = 0; i < N; i++)
        narrow(static_cast<float>(sum[i]), &to.at[i]);
    store_group<N>(dpositions + blockIdx.x * cols + j, to);
}

/* Sorts the rows into one of the two halves of scratch, and returns which half it is. */
int sort_rows(struct CUstream_st *stream, const int32_t *tokens, size_t rows, uint64_t *scratch,
              uint64_t **sorted)
{
    uint64_t *from = scratch, *to = scratch + rows;
    int status = LAUNCH(sort_tiles, blocks_of(rows, TILE), SORT_THREADS, TILE * sizeof(uint64_t), stream,
                        tokens, from, rows);

    for (size_t length = TILE; length < rows && status == KERNEL_OK; length *= 2) {
        uint64_t *kept = from;

        status = LAUNCH(merge_runs, blocks_of(rows, SORT_THREADS), SORT_THREADS, 0, stream, from, to, rows,
                        length);
        from = to;
        to = kept;
    }
    *sorted = from;
    return status;
}

/* Handles N elements at once: 4, which are 16 bytes of float32, or 1. */
template <int N, class T, class G>
int launch_sums(struct CUstream_st *stream, const int32_t *tokens, const T *dout, G *dtable, G *dpositions,
                size_t rows, size_t cols, size_t seq, uint64_t *scratch)
{
    const unsigned wanted = blocks_of(cols, N * WARP) * WARP,
                   threads = wanted < SUM_THREADS ? wanted : +SUM_THREADS;
    const dim3 grid(blocks_of(rows, PIECE), blocks_of(cols, static_cast<size_t>(threads) * N));
    float *parts = reinterpret_cast<float *>(scratch + 2 * rows);
    uint64_t *keys;
    int status = KERNEL_OK;

    if (dtable != NULL) {
        status = sort_rows(stream, tokens, rows, scratch, &keys);
        if (status == KERNEL_OK)
            status = LAUNCH((sum_pieces<T, G, N>), grid, threads, 2 * PIECE * sizeof(uint64_t), stream, keys,
                            dout, dtable, parts, rows, cols);
        if (status == KERNEL_OK && rows > PIECE)
            status = LAUNCH((add_pieces<G, N>), grid, threads, 0, stream, keys, parts, dtable, rows, cols);
    }
    if (status == KERNEL_OK && dpositions != NULL)
        status = LAUNCH((sum_positions<T, G, N>), dim3(static_cast<unsigned>(seq), grid.y), threads, 0,
                        stream, dout, dpositions, rows, cols, seq);
    return status;
}

} // namespace

int kernel_embedding_backward(struct CUstream_st *stream, const int32_t *tokens, const void *dout,
                              enum fsdp_dtype dtype, void *dtable, void *dpositions,
                              enum fsdp_dtype grad_dtype, size_t rows, size_t cols, size_t seq, void *scratch)
{
    if (rows > INT32_MAX)
        return KERNEL_INVALID;
    if (rows == 0 || cols == 0)
        return KERNEL_OK;
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        return by_dtype(grad_dtype, [&](auto grad_type) {
            using G = decltype(grad_type);

            const T *from = static_cast<const T *>(dout);
            G *table = static_cast<G *>(dtable), *positions = static_cast<G *>(dpositions);
            uint64_t *room = static_cast<uint64_t *>(scratch);

            return cols % 4 == 0 && is_packed(dout) && is_packed(dtable) && is_packed(dpositions)
                       ? launch_sums<4>(stream, tokens, from, table, positions, rows, cols, seq, room)
                       : launch_sums<1>(stream, tokens, from, table, positions, rows, cols, seq, room);
        });
    });
}
