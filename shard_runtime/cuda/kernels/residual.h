/*
 * What both norms' forward kernels share. A warp owns a row, which is the input or the residual sum a +
 * dropout(b). The warp reads each element once from global memory and keeps the row in shared memory for its
 * later passes. The block's warps share one copy of the weight and bias there. Rows too long for that are
 * read again from global memory. The sum's roundings are those of add.cu and dropout.cu one after the other.
 */
#ifndef CUDA_KERNELS_RESIDUAL_H
#define CUDA_KERNELS_RESIDUAL_H

#include "shard_runtime/cuda/kernels/philox.h"
#include "shard_runtime/cuda/kernels/walk.h"

template <class T> struct residual {
    const T *b; /* NULL: there is no sum, and `a` itself is normalised */
    T *sum;
    drop d; /* of b */
};

/** Returns elements j .. j + N - 1 of the row to normalise. If the row is a sum, also stores them. */
template <int N, class T>
__device__ __forceinline__ group<T, N> summed_group(const T *a, const residual<T> &r, size_t row, size_t cols,
                                                    size_t j)
{
    const size_t at = row * cols + j;
    const group<T, N> x = load_group<N>(a + at);
    philox_words words = {};
    group<T, N> b, s;

    if (r.b == NULL)
        return x;
    b = load_group<N>(r.b + at);
    for (int i = 0; i < N; i++) {
        const int of_four = N == 1 ? static_cast<int>(j % 4) : i % 4; /* a pack begins at a multiple of 4 */
        float term = widen(b.at[i]);

        if (r.d.on && i % 4 == 0)
            words = philox(r.d.key, r.d.first_row + row, (j + i) / 4);
        if (r.d.on)
            term = word_of(words, of_four) < r.d.keep_below ? times(term, r.d.scale) : 0.0f;
        narrow(plus(widen(x.at[i]), term), &s.at[i]);
    }
    store_group<N>(r.sum + at, s);
    return s;
}

/*
 * A block's rows, one for each warp, and its dynamic shared memory: a row for each warp, then weight and
 * bias.
 */
struct norm_block {
    unsigned warps;
    /* rows and parameters are kept in shared memory; false: the block uses no shared memory for them */
    bool kept;
    size_t shared_bytes;
};

enum {
    NORM_WARPS = 8,
    NORM_FEW_WARPS = 4,
    NORM_THREADS = NORM_WARPS * WARP,
    /* for a block of 8 warps: four such blocks fit on an SM of sm_90, three on one of sm_80 */
    NORM_SHARED_BYTES = 48 * 1024,
    NORM_FEW_SHARED_BYTES = 96 * 1024, /* of 4 warps */
};

/**
 * Returns the block for rows of x that have `row_bytes` each. `parameters`: how many rows of parameters, of
 * the same size, it keeps: 1 or 2.
 */
static inline norm_block norm_block_of(size_t row_bytes, size_t parameters)
{
    if ((NORM_WARPS + parameters) * row_bytes <= NORM_SHARED_BYTES)
        return { NORM_WARPS, true, (NORM_WARPS + parameters) * row_bytes };
    if ((NORM_FEW_WARPS + parameters) * row_bytes <= NORM_FEW_SHARED_BYTES)
        return { NORM_FEW_WARPS, true, (NORM_FEW_WARPS + parameters) * row_bytes };
    return { NORM_WARPS, false, 0 };
}

/** Copy a row of parameters into shared memory, by the whole block; a barrier then shows it to the block. */
template <int N, class T> __device__ __forceinline__ void keep_parameters(T *to, const T *from, size_t cols)
{
    for (size_t j = static_cast<size_t>(threadIdx.x) * N; j < cols; j += static_cast<size_t>(blockDim.x) * N)
        store_group<N>(to + j, load_group<N>(from + j));
}

template <class T> residual<T> residual_of(const struct numerics_add_norm *norm)
{
    return { static_cast<const T *>(norm->b), static_cast<T *>(norm->x), drop_of(norm->dropout) };
}

#endif
