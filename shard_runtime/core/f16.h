/*
 * float16 (IEEE 754 binary16), as weight files contain it. This library reads float16 but never computes in
 * it.
 */
#ifndef CORE_F16_H
#define CORE_F16_H

#include <stdint.h>
#include <string.h>

/*
 * Converts exactly: float32 can represent every float16 value, including subnormal numbers and infinities. A
 * NaN keeps its sign and its fraction bits.
 */
static inline float f16_to_f32(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31u,
                   fraction = half & 0x3ffu;
    uint32_t bits;
    float value;

    if (exponent == 0) { /* zero or subnormal: the fraction counts steps of 2^-24 */
        value = (float)fraction * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
    } else {
        bits = (exponent == 31 ? 0x7f800000u : (exponent + (127 - 15)) << 23) | fraction << 13;
    }
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
