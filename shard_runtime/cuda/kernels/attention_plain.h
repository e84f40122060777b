/*
 * Tiles of the plain attention kernels. A block owns 16 rows, 4 for each warp. It walks over the other rows
 * 32 at a time, one for each lane. D is head_dim in steps of 32, rounded up; elements beyond head_dim are
 * zero.
 */
#ifndef CUDA_KERNELS_ATTENTION_PLAIN_H
#define CUDA_KERNELS_ATTENTION_PLAIN_H

#include "shard_runtime/cuda/kernels/attention.h"

enum {
    PLAIN_WARPS = 4,
    PLAIN_THREADS = PLAIN_WARPS * WARP,
    PLAIN_ROWS = 4,
    PLAIN_OWN = PLAIN_WARPS * PLAIN_ROWS
};

/*
 * Has one float more than the row needs. So the rows of the lanes begin in different banks of shared memory.
 */
template <int D> struct plain_row {
    static constexpr int ELEMS = D * WARP + 1;
};

/**
 * Copies rows first .. first + n - 1 of a tensor into shared memory, with zeros beyond seq and head_dim. The
 * whole block does it.
 */
template <int D, class T>
__device__ void plain_load(float *to, const attention_rows<const T> &rows, const attention_call<T> &call,
                           int first, int n)
{
    for (int i = threadIdx.x; i < n * D * WARP; i += PLAIN_THREADS) {
        const int t = i / (D * WARP), e = i % (D * WARP);
        const bool there = first + t < call.seq && e < call.head_dim;

        to[t * plain_row<D>::ELEMS + e] = there ? widen(attention_row(rows, call, first + t)[e]) : 0.0f;
    }
}

/** sum_e own[e] * other[e]. */
template <int D> __device__ __forceinline__ float plain_dot(const float *own, const float *other)
{
    float sum = 0;

    for (int e = 0; e < D * WARP; e++)
        sum += own[e] * other[e];
    return sum;
}

/** sums[c] += sum_j factor[j] * rows[j][lane + 32 c]. */
template <int D>
__device__ __forceinline__ void plain_add_rows(float sums[D], const float *factor, const float *rows)
{
    for (int j = 0; j < WARP; j++)
        UNROLL
    for (int c = 0; c < D; c++)
        sums[c] += factor[j] * rows[j * plain_row<D>::ELEMS + threadIdx.x % WARP + c * WARP];
}

template <int D, class T>
__device__ void plain_write(const attention_rows<T> &rows, const attention_call<T> &call, int t,
                            const float sums[D], float factor)
{
    UNROLL
    for (int c = 0; c < D; c++) {
        const int e = static_cast<int>(threadIdx.x) % WARP + c * WARP;

        if (t < call.seq && e < call.head_dim)
            narrow(sums[c] * factor, &attention_row(rows, call, t)[e]);
    }
}

/** Call f(D as a width) for the smallest D that holds head_dim. */
template <class F> int plain_by_width(int head_dim, F f)
{
    if (head_dim <= 32)
        return f(plain_row<1>());
    if (head_dim <= 64)
        return f(plain_row<2>());
    if (head_dim <= 128)
        return f(plain_row<4>());
    if (head_dim <= 256)
        return f(plain_row<8>());
    return f(plain_row<16>());
}

template <int D> constexpr int plain_width(plain_row<D>)
{
    return D;
}

#endif
