/*
 * float8 e4m3 in software (Micikevicius et al., "FP8 formats for deep learning", 2022): 1 sign, 4 bits of exponent with
 * bias 7, 3 of mantissa; no infinity, NaN is 7f and ff, the largest number 448, the smallest 2^-9. A tensor has one scale,
 * which the largest size in it gives; cuda/kernels/fp8.cu is the same arithmetic, bit for bit.
 */
#ifndef CORE_E4M3_H
#define CORE_E4M3_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define E4M3_LARGEST 448.0f
/* So large that the smallest code times it is a normal number, as float32 and as bfloat16: what is decoded and encoded
 * again has its code back. */
#define E4M3_SMALLEST_SCALE 0x1p-100f
enum { E4M3_NAN = 0x7f };

static inline uint32_t e4m3_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float e4m3_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What one code step of a tensor stands for. `amax`: its largest size; infinite where any number of it is not finite. */
static inline float e4m3_scale(float amax)
{
    const float scale = amax / E4M3_LARGEST;

    return scale > E4M3_SMALLEST_SCALE ? scale : E4M3_SMALLEST_SCALE;
}

/* To nearest, ties to even, beyond 448 clamped; a NaN stays one. No branches: loops over it are vectorised. */
static inline uint8_t e4m3_of_f32(float value)
{
    const uint32_t bits = e4m3_bits(value), size = bits & 0x7fffffffu;
    /* Ties to even on the 20 bits that go; a carry moves on into the exponent. */
    const uint32_t normal = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - ((127u - 7u) << 3);
    /* Below 2^-6 numbers are multiples of 2^-9, the last bit of what lies around 2^14: the sum rounds to it. */
    const uint32_t small = e4m3_bits(e4m3_float(size) + 0x1p14f) - 0x46800000u;
    uint32_t code = size < 0x3c800000u ? small : normal; /* 2^-6 */

    code = size >= 0x43e00000u ? 0x7eu : code; /* 448 */
    code = size > 0x7f800000u ? (uint32_t)E4M3_NAN : code;
    return (uint8_t)(code | (bits >> 24 & 0x80u));
}

/* Exact; both NaN codes are the one quiet NaN. */
static inline float e4m3_to_f32(uint8_t code)
{
    const uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
    const float size =
        exponent == 0 ? (float)mantissa * 0x1p-9f : e4m3_float((exponent + 127u - 7u) << 23 | mantissa << 20);

    if ((code & 0x7fu) == E4M3_NAN)
        return e4m3_float(0x7fc00000u);
    return (code & 0x80u) != 0 ? -size : size;
}

/* What `code` stands for in a tensor of this largest size: NaN throughout where that is not finite. */
static inline float e4m3_value(uint8_t code, float amax)
{
    const float value = e4m3_to_f32(code);

    return value != value || e4m3_bits(amax) >= 0x7f800000u ? e4m3_float(0x7fc00000u)
                                                            : value * e4m3_scale(amax);
}

#endif
