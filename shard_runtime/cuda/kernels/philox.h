/*
 * core/rng.h's Philox4x32-10 on the device. It gives the same words for the same (key, counter), so a mask or
 * a rounding equals the cpu's to the last bit.
 */
#ifndef CUDA_KERNELS_PHILOX_H
#define CUDA_KERNELS_PHILOX_H

#include "shard_runtime/cuda/kernels/launch.h"
#include "shard_runtime/numerics/dropout.h"

struct philox_words {
    uint32_t at[4];
};

__device__ __forceinline__ philox_words philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo)
{
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    uint32_t c0 = static_cast<uint32_t>(counter_lo), c1 = static_cast<uint32_t>(counter_lo >> 32);
    uint32_t c2 = static_cast<uint32_t>(counter_hi), c3 = static_cast<uint32_t>(counter_hi >> 32);

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0,
                       p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;

        c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
        c1 = static_cast<uint32_t>(p1);
        c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c3 = static_cast<uint32_t>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return { { c0, c1, c2, c3 } };
}

/* struct dropout as a kernel takes it: by value, with what the host derives from p. */
struct drop {
    uint64_t key, first_row;
    uint32_t keep_below;
    float scale;
    bool on;
};

static inline drop drop_of(const struct dropout *dropout)
{
    if (!dropout_is_on(dropout))
        return { 0, 0, 0, 1.0f, false };
    return { dropout->key, dropout->first_row, dropout_keep_below(dropout), dropout_scale(dropout), true };
}

/**
 * Returns one of the four words. It is chosen by comparisons, because an array that is indexed by a variable
 * would be in memory, not in registers.
 */
__device__ __forceinline__ uint32_t word_of(const philox_words &words, int i)
{
    const uint32_t low = i % 2 == 0 ? words.at[0] : words.at[1],
                   high = i % 2 == 0 ? words.at[2] : words.at[3];

    return i < 2 ? low : high;
}

/** Returns the factor for element e of row `row` (counted from the caller's row 0): 0, or 1 / keep. */
__device__ __forceinline__ float drop_factor(const drop &d, uint64_t row, uint64_t e)
{
    const philox_words words = philox(d.key, d.first_row + row, e / 4);

    return word_of(words, static_cast<int>(e % 4)) < d.keep_below ? d.scale : 0.0f;
}

#endif
