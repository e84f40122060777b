/*
 * bfloat16 in software: the upper half of a float32. Where bits are converted, these two do it, so that every
 * part of a step rounds alike.
 */
#ifndef CORE_BF16_H
#define CORE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bf16_to_f32(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof value);
    return value;
}

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t bf16_of_f32(float value)
{
    uint32_t bits;
    uint32_t rounded;

    memcpy(&bits, &value, sizeof bits);
    rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
}

/*
 * To one of the two neighbours: away from zero where `draw`, of 0 ... 65535 each as likely as any, says so, which it does for as
 * many of them as the lost bits count. So the mean over draws is the value, and what bfloat16 has stays. Beyond the largest
 * finite one, where the mean could not be the value, and for what is not finite: to nearest, as above.
 */
static inline uint16_t bf16_of_f32_drawn(float value, uint32_t draw)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x7fffffffu) > 0x7f7f0000u ? bf16_of_f32(value) : (uint16_t)((bits + draw) >> 16);
}

#endif
