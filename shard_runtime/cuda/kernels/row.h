/*
 * A warp walks along a row, N elements a lane at a time: 16 bytes where the row allows, else one. The same lane gets
 * the same elements every time, so that what it wrote it may read again without a barrier.
 */
#ifndef CUDA_KERNELS_ROW_H
#define CUDA_KERNELS_ROW_H

#include "shard_runtime/cuda/kernels/number.h"

enum { ROW_WARPS = 4, ROW_THREADS = ROW_WARPS * WARP }; /* rows a block works on, one each warp */

template <class T, int N>
struct group {
    T at[N];
};

template <int N, class T>
__device__ __forceinline__ group<T, N> load_group(const T *from)
{
    group<T, N> to;

    if constexpr (N == 1) {
        to.at[0] = *from;
    } else {
        const pack<T> all = load_pack(from);

        for (int i = 0; i < N; i++)
            to.at[i] = all.at[i];
    }
    return to;
}

template <int N, class T>
__device__ __forceinline__ void store_group(T *to, const group<T, N> &from)
{
    if constexpr (N == 1) {
        *to = from.at[0];
    } else {
        pack<T> all;

        for (int i = 0; i < N; i++)
            all.at[i] = from.at[i];
        store_pack(to, all);
    }
}

/** f(j) for the first element j of each of the calling lane's groups in a row of `cols`, a multiple of N. */
template <int N, class F>
__device__ __forceinline__ void row_each(size_t cols, F f)
{
    for (size_t j = static_cast<size_t>(threadIdx.x % WARP) * N; j < cols; j += WARP * N)
        f(j);
}

#endif
