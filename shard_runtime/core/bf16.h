/*
 * bfloat16 in software: the upper half of a float32. The vectorised code in numerics/isa and the CUDA kernels
 * round in the same way as these functions. So every part of a training step rounds alike.
 */
#ifndef CORE_BF16_H
#define CORE_BF16_H

#include <stdint.h>
#include <string.h>

/* Returns the value exactly: float32 can represent every bfloat16. */
static inline float bf16_to_f32(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Rounds to the nearest value, ties to even. A NaN stays a NaN. */
static inline uint16_t bf16_of_f32(float value)
{
    uint32_t bits;
    uint32_t rounded;

    memcpy(&bits, &value, sizeof bits);
    rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
}

/*
 * Rounds stochastically, to one of the two neighbouring values. `draw` is a uniformly random number from 0 to
 * 65535. The result is rounded away from zero with probability low / 65536, where `low` is the value of the
 * 16 lost bits. So the mean over all draws is the exact value, and a value that bfloat16 can represent is
 * unchanged.
 *
 * Exceptions are values that are not finite or are larger than the largest finite bfloat16. They are rounded
 * to nearest, as bf16_of_f32() does.
 */
static inline uint16_t bf16_of_f32_drawn(float value, uint32_t draw)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x7fffffffu) > 0x7f7f0000u ? bf16_of_f32(value) : (uint16_t)((bits + draw) >> 16);
}

#endif
