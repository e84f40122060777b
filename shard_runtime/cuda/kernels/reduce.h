/*
 * Sums and maxima over a warp and a block, in an order that is the same on every run. First comes a butterfly
 * over the lanes: it may add its two halves in either order, with the same bits. Then the warps are added in
 * order.
 */
#ifndef CUDA_KERNELS_REDUCE_H
#define CUDA_KERNELS_REDUCE_H

#include <math.h>

#include "shard_runtime/cuda/kernels/launch.h"

/** The sum of the 32 lanes' values, in every lane. */
template <class T> __device__ __forceinline__ T warp_sum(T value)
{
    for (int mask = WARP / 2; mask > 0; mask /= 2)
        value += warp_xor(value, mask);
    return value;
}

/* The larger; a NaN if one is. */
template <class T> __device__ __forceinline__ T larger(T a, T b)
{
    return a > b || isnan(a) ? a : b;
}

template <class T> __device__ __forceinline__ T warp_largest(T value)
{
    for (int mask = WARP / 2; mask > 0; mask /= 2)
        value = larger(value, warp_xor(value, mask));
    return value;
}

struct take_sum {
    template <class T> __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

struct take_largest {
    template <class T> __device__ T operator()(T a, T b) const
    {
        return larger(a, b);
    }
};

/**
 * Combines the values of the block's threads by `take`; every thread gets the result. `room` is one T per
 * warp in shared memory. It may be used again at once, because the call ends with a barrier.
 */
template <class T, class Take> __device__ T block_reduce(T value, T *room, Take take)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    T result;

    for (int mask = WARP / 2; mask > 0; mask /= 2)
        value = take(value, warp_xor(value, mask));
    if (lane == 0)
        room[warp] = value;
    block_barrier();
    result = room[0];
    for (int i = 1; i < n_warps; i++)
        result = take(result, room[i]);
    block_barrier();
    return result;
}

#endif
