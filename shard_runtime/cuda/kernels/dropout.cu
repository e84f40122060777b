/*
 * Dropout: four elements of a row share one block of random words, and one thread.
 */
#include "shard_runtime/cuda/kernels/philox.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

template <class T>
__global__ void __launch_bounds__(FLAT_THREADS) dropout_rows(const T *x, T *out, size_t rows, size_t cols, drop d,
                                                             bool accumulate)
{
    const size_t quads = (cols + 3) / 4, i = static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x;
    const size_t row = i / quads, first = i % quads * 4;
    philox_words words = {};

    if (row >= rows)
        return;
    if (d.on)
        words = philox(d.key, d.first_row + row, first / 4);
    for (size_t k = 0; k < 4 && first + k < cols; k++) {
        const size_t at = row * cols + first + k;
        const float kept = !d.on ? widen(x[at]) : words.at[k] < d.keep_below ? times(widen(x[at]), d.scale) : 0.0f;

        narrow(accumulate ? plus(widen(out[at]), kept) : kept, &out[at]);
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
        return LAUNCH(dropout_rows<T>, blocks_of(rows * ((cols + 3) / 4), FLAT_THREADS), FLAT_THREADS, 0, stream,
                      static_cast<const T *>(x), static_cast<T *>(out), rows, cols, drop_of(dropout), accumulate);
    });
}
