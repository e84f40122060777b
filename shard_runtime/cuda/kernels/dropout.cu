/*
 * Dropout: four elements of a row share one block of random words, and one thread.
 */
#include "shard_runtime/cuda/kernels/philox.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

/* Handles N elements at once: 4, or 1 if rows do not begin at a multiple of 4. */
template <class T, int N>
__global__ void __launch_bounds__(FLAT_THREADS)
    dropout_rows(const T *x, T *out, size_t rows, size_t cols, drop d, bool accumulate)
{
    const size_t quads = (cols + 3) / 4, i = static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x;
    const size_t row = i / quads, first = i % quads * 4;
    philox_words words = {};

    if (row >= rows)
        return;
    if (d.on)
        words = philox(d.key, d.first_row + row, first / 4);
    UNROLL
    for (size_t k = 0; k < 4; k += N) {
        const size_t at = row * cols + first + k;
        group<T, N> from, to = {};

        if (first + k >= cols)
            return;
        from = load_group<N>(x + at);
        if (accumulate)
            to = load_group<N>(out + at);
        for (size_t e = 0; e < N; e++) {
            const float value = widen(from.at[e]);
            const float kept = !d.on ? value : words.at[k + e] < d.keep_below ? times(value, d.scale) : 0.0f;

            narrow(accumulate ? plus(widen(to.at[e]), kept) : kept, &to.at[e]);
        }
        store_group<N>(out + at, to);
    }
}

} // namespace

int kernel_dropout(struct CUstream_st *stream, const void *x, void *out, size_t rows, size_t cols,
                   const struct dropout *dropout, bool accumulate, enum fsdp_dtype dtype)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        if (rows == 0 || cols == 0)
            return static_cast<int>(KERNEL_OK);
        if (cols % 4 == 0 && is_packed(x) && is_packed(out))
            return LAUNCH((dropout_rows<T, 4>), blocks_of(rows * (cols / 4), FLAT_THREADS), FLAT_THREADS, 0,
                          stream, static_cast<const T *>(x), static_cast<T *>(out), rows, cols,
                          drop_of(dropout), accumulate);
        return LAUNCH((dropout_rows<T, 1>), blocks_of(rows * ((cols + 3) / 4), FLAT_THREADS), FLAT_THREADS, 0,
                      stream, static_cast<const T *>(x), static_cast<T *>(out), rows, cols, drop_of(dropout),
                      accumulate);
    });
}
