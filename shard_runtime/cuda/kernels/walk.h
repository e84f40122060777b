/*
 * How threads walk over elements, N at a time: 16 bytes of them where the addresses allow, else one.
 *   row_each   a warp along a row. The same lane gets the same elements every time, so it may read again what
 *              it wrote without a barrier.
 *   flat_each  all threads of the grid over an array
 */
#ifndef CUDA_KERNELS_WALK_H
#define CUDA_KERNELS_WALK_H

#include "shard_runtime/cuda/kernels/number.h"

enum {
    ROW_WARPS = 4, /* rows on which a block works, one for each warp */
    ROW_THREADS = ROW_WARPS * WARP,
    FLAT_THREADS = 256,
};

template <class T, int N> struct group {
    T at[N];
};

template <int N, class T> __device__ __forceinline__ group<T, N> load_group(const T *from)
{
    group<T, N> to;

    if constexpr (N == 1) {
        count_access(sizeof *from, 0);
        to.at[0] = *from;
    } else {
        const pack<T, N> all = load_pack_of<N>(from);

        for (int i = 0; i < N; i++)
            to.at[i] = all.at[i];
    }
    return to;
}

template <int N, class T> __device__ __forceinline__ void store_group(T *to, const group<T, N> &from)
{
    if constexpr (N == 1) {
        count_access(0, sizeof *to);
        *to = from.at[0];
    } else {
        pack<T, N> all;

        for (int i = 0; i < N; i++)
            all.at[i] = from.at[i];
        store_pack(to, all);
    }
}

/**
 * Calls f(j) for each of the calling lane's groups in a row of `cols` elements, a multiple of N; j is the
 * group's first element.
 */
template <int N, class F> __device__ __forceinline__ void row_each(size_t cols, F f)
{
    for (size_t j = static_cast<size_t>(threadIdx.x % WARP) * N; j < cols; j += WARP * N)
        f(j);
}

template <int N> struct width {
    static constexpr int value = N;
};

/**
 * Calls f(width<N>(), i) for each group of N elements from i on that belongs to the calling thread. Calls
 * f(width<1>(), i) for each element that is left at the array's end.
 */
template <int N, class F> __device__ __forceinline__ void flat_each(size_t n_elems, F f)
{
    size_t i = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;

    if (i + N <= n_elems) {
        f(width<N>(), i);
        return;
    }
    for (; i < n_elems; i++)
        f(width<1>(), i);
}

#endif
