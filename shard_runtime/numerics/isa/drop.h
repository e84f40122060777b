/*
 * Dropout of one row: VL Philox blocks at a time (core/rng.h has the algorithm), four elements a block.
 */
#ifndef NUMERICS_ISA_DROP_H
#define NUMERICS_ISA_DROP_H

#include "shard_runtime/numerics/dropout.h"
#include "shard_runtime/numerics/isa/vec.h"

/* Word w of blocks block .. block + VL - 1 of `row`; block is a multiple of VL, so that no carry falls
 * inside. */
static inline void philox_blocks(uint64_t key, uint64_t row, uint64_t block, vu words[4])
{
    vu c0 = vu_iota() + (uint32_t)block, c1 = vu_set((uint32_t)(block >> 32));
    vu c2 = vu_set((uint32_t)row), c3 = vu_set((uint32_t)(row >> 32));
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        vu high0, low0, high1, low1;

        vu_mul_wide(c0, vu_set(0xD2511F53u), &high0, &low0);
        vu_mul_wide(c2, vu_set(0xCD9E8D57u), &high1, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* Which of the elements 4 * block .. 4 * (block + VL) - 1 stay, in their order. */
static inline void keep_masks(const struct dropout *dropout, uint64_t row, uint64_t block, vi keep[4])
{
    const uint32_t below = dropout_keep_below(dropout);
    vu words[4], even_low, even_high, odd_low, odd_high, in_order[4];

    philox_blocks(dropout->key, row, block, words);
    vu_zip(words[0], words[2], &even_low, &even_high);
    vu_zip(words[1], words[3], &odd_low, &odd_high);
    vu_zip(even_low, odd_low, &in_order[0], &in_order[1]);
    vu_zip(even_high, odd_high, &in_order[2], &in_order[3]);
    for (int part = 0; part < 4; part++)
        keep[part] = (vi)(in_order[part] < below);
}

/* out (+)= dropout(x) over one row of n elements; dropout is on; out may be x. */
static inline void drop_row(const float *x, float *out, size_t n, const struct dropout *dropout, uint64_t row,
                            bool accumulate)
{
    const vf scale = vf_set(dropout_scale(dropout));

    for (size_t j = 0; j < n; j += 4 * VL) {
        vi keep[4];

        keep_masks(dropout, row, j / 4, keep);
        for (size_t part = 0; part < 4; part++) {
            const size_t at = j + part * VL;

            if (at + VL <= n) {
                const vf y = vf_select(keep[part], vf_load(x + at) * scale, vf_set(0));

                vf_store(out + at, accumulate ? vf_load(out + at) + y : y);
            } else if (at < n) {
                const vf y = vf_select(keep[part], vf_load_part(x + at, n - at, 0) * scale, vf_set(0));

                vf_store_part(out + at, accumulate ? vf_load_part(out + at, n - at, 0) + y : y, n - at);
            }
        }
    }
}

#endif
