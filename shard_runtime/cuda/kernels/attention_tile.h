/*
 * What the two attention kernels on tiles share: rows of bfloat16 in shared memory. A block owns 64 rows, 16
 * for each of its four warps. D is head_dim, 64 or 128.
 */
#ifndef CUDA_KERNELS_ATTENTION_TILE_H
#define CUDA_KERNELS_ATTENTION_TILE_H

#include "shard_runtime/cuda/kernels/attention.h"
#include "shard_runtime/cuda/kernels/tile.h"

enum { TILE_WARPS = 4, TILE_THREADS = TILE_WARPS * WARP, TILE_OWN = TILE_WARPS * 16 };

constexpr float LN_2 = 0.693147181f;

template <int D> struct tile_row {
    static constexpr int STRIDE = D + 8; /* see tile.h */
};

/** Begins to copy rows first .. first + ROWS - 1, with zeros beyond seq. The whole block does it. */
template <int D, int ROWS>
__device__ __forceinline__ void tile_copy_rows(bf16 *to, const attention_rows<const bf16> &rows,
                                               const attention_call<bf16> &call, int first)
{
    constexpr int PACKS = D / 8; /* 16 bytes each, a row */

    UNROLL
    for (int i = 0; i < ROWS * PACKS / TILE_THREADS; i++) {
        const int at = i * TILE_THREADS + static_cast<int>(threadIdx.x), t = at / PACKS, e = at % PACKS * 8;
        const bool valid = first + t < call.seq;

        tile_copy(to + t * tile_row<D>::STRIDE + e, attention_row(rows, call, valid ? first + t : 0) + e,
                  valid);
    }
}

/** Row (of 16) and column (of 8) of element i of the calling lane's tile_c. */
__device__ __forceinline__ int tile_row_of(int i)
{
    return static_cast<int>(threadIdx.x) % WARP / 4 + i / 2 * 8;
}

__device__ __forceinline__ int tile_column_of(int i)
{
    return static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
}

/**
 * Adds a product of matrices to `scores` (16 x ROWS): the warp's 16 rows times the transpose of `others`.
 * left(e) returns the left factor's columns 16 e .. 16 e + 15; `others` is ROWS rows in shared memory.
 */
template <int D, int ROWS, class Left>
__device__ __forceinline__ void tile_add_scores(tile_c scores[ROWS / 8], Left left, const bf16 *others)
{
    constexpr int STRIDE = tile_row<D>::STRIDE;

    UNROLL
    for (int e = 0; e < D / 16; e++) {
        const tile_a a = left(e);

        UNROLL
        for (int n = 0; n < ROWS / 16; n++) {
            tile_b b[2];

            tile_load_b(b, others + n * 16 * STRIDE + e * 16, STRIDE);
            tile_mma(scores[2 * n], a, b[0]);
            tile_mma(scores[2 * n + 1], a, b[1]);
        }
    }
}

/**
 * Adds a product of matrices to `sums` (16 x D): `factors` (16 x ROWS), rounded to bfloat16, times `others`
 * (ROWS x D).
 */
template <int D, int ROWS>
__device__ __forceinline__ void tile_add_rows(tile_c sums[D / 8], const tile_c factors[ROWS / 8],
                                              const bf16 *others)
{
    constexpr int STRIDE = tile_row<D>::STRIDE;

    UNROLL
    for (int j = 0; j < ROWS / 16; j++) {
        const tile_a a = tile_a_of(factors[2 * j], factors[2 * j + 1]);

        UNROLL
        for (int n = 0; n < D / 16; n++) {
            tile_b b[2];

            tile_load_b_transposed(b, others + j * 16 * STRIDE + n * 16, STRIDE);
            tile_mma(sums[2 * n], a, b[0]);
            tile_mma(sums[2 * n + 1], a, b[1]);
        }
    }
}

/** Writes rows first .. first + 15 of sums * factor[row / 8], rounded, two elements at a time. */
template <int D>
__device__ __forceinline__ void tile_write(const attention_rows<bf16> &rows, const attention_call<bf16> &call,
                                           int first, const tile_c sums[D / 8], const float factor[2])
{
    UNROLL
    for (int half = 0; half < 2; half++) {
        const int t = first + tile_row_of(half * 2);

        if (t >= call.seq)
            continue;
        UNROLL
        for (int n = 0; n < D / 8; n++) {
            tile_store_pair(attention_row(rows, call, t) + n * 8 + tile_column_of(0),
                            sums[n].at[half * 2] * factor[half], sums[n].at[half * 2 + 1] * factor[half]);
        }
    }
}

#endif
