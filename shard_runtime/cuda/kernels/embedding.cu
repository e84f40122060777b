/*
 * Rows of a table by token, with the position's row added.
 */
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

/* samples of one position that a thread writes, so that it reads the position's row only once for them */
enum { SAMPLES = 4 };

/* With positions, `rows` are samples of `seq` positions. Without them, all rows are one sample. */
template <class T, int N>
__global__ void __launch_bounds__(FLAT_THREADS)
    embed_rows(const int32_t *tokens, const T *table, const T *positions, T *out, size_t n_elems, size_t rows,
               size_t cols, size_t seq)
{
    flat_each<N>(n_elems, [&](auto w, size_t i) {
        constexpr int M = decltype(w)::value; /* M divides cols, so a group never crosses the end of a row */
        const size_t place = i / cols, t = place % seq, j = i % cols;
        group<T, M> at = {};

        if (positions != NULL)
            at = load_group<M>(positions + t * cols + j);
        UNROLL
        for (int s = 0; s < SAMPLES; s++) {
            const size_t row = (place / seq * SAMPLES + s) * seq + t;
            group<T, M> x;

            if (row >= rows)
                continue;
            x = load_group<M>(table + static_cast<size_t>(tokens[row]) * cols + j);
            for (int k = 0; positions != NULL && k < M; k++)
                narrow(widen(x.at[k]) + widen(at.at[k]), &x.at[k]);
            store_group<M>(out + row * cols + j, x);
        }
    });
}

} // namespace

int kernel_embedding(struct CUstream_st *stream, const int32_t *tokens, const void *table,
                     const void *positions, void *out, size_t rows, size_t cols, size_t seq,
                     enum fsdp_dtype dtype)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);
        const T *from = static_cast<const T *>(table), *at = static_cast<const T *>(positions);
        T *to = static_cast<T *>(out);
        const size_t span = positions == NULL ? rows : seq; /* a sample */
        size_t n_elems;

        if (rows == 0 || cols == 0)
            return static_cast<int>(KERNEL_OK);
        n_elems = blocks_of(rows, span * (positions == NULL ? 1 : SAMPLES)) * span * cols;
        if (cols % pack<T>::N == 0 && is_packed(table) && is_packed(positions) && is_packed(out))
            return LAUNCH((embed_rows<T, pack<T>::N>), blocks_of(n_elems, FLAT_THREADS * pack<T>::N),
                          FLAT_THREADS, 0, stream, tokens, from, at, to, n_elems, rows, cols, span);
        return LAUNCH((embed_rows<T, 1>), blocks_of(n_elems, FLAT_THREADS), FLAT_THREADS, 0, stream, tokens,
                      from, at, to, n_elems, rows, cols, span);
    });
}
