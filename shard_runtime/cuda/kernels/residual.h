/*
 * The residual sum in front of a norm, sum = a + dropout(b): a warp adds its row, and its lanes then read again what they
 * wrote themselves. Roundings are those of add.cu and dropout.cu one after the other.
 */
#ifndef CUDA_KERNELS_RESIDUAL_H
#define CUDA_KERNELS_RESIDUAL_H

#include "shard_runtime/cuda/kernels/philox.h"
#include "shard_runtime/cuda/kernels/walk.h"

template <class T> struct residual {
    const T *b; /* NULL: no sum, a is what is normalised */
    T *sum;
    drop d; /* of b */
};

/** The row to normalise, of `a` or of the sum. N elements at once: 16 bytes of them, or one. */
template <class T, int N>
__device__ __forceinline__ const T *summed_row(const T *a, const residual<T> &r, size_t row, size_t cols)
{
    const size_t at = row * cols;

    if (r.b == NULL)
        return a + at;
    row_each<N>(cols, [&](size_t j) {
        const group<T, N> x = load_group<N>(a + at + j), b = load_group<N>(r.b + at + j);
        philox_words words = {};
        group<T, N> s;

        for (int i = 0; i < N; i++) {
            const int of_four =
                N == 1 ? static_cast<int>(j % 4) : i % 4; /* a pack begins at a multiple of 4 */
            float term = widen(b.at[i]);

            if (r.d.on && i % 4 == 0)
                words = philox(r.d.key, r.d.first_row + row, (j + i) / 4);
            if (r.d.on)
                term = word_of(words, of_four) < r.d.keep_below ? times(term, r.d.scale) : 0.0f;
            narrow(plus(widen(x.at[i]), term), &s.at[i]);
        }
        store_group<N>(r.sum + at + j, s);
    });
    return r.sum + at;
}

template <class T> residual<T> residual_of(const struct numerics_add_norm *norm)
{
    return { static_cast<const T *>(norm->b), static_cast<T *>(norm->x), drop_of(norm->dropout) };
}

#endif
