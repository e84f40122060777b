/*
 * float8 e4m3 in software (Micikevicius et al., "FP8 formats for deep learning", 2022). A number has 1 sign
 * bit, 4 exponent bits with bias 7 and 3 mantissa bits. There is no infinity; 7f and ff are NaN. The largest
 * number is 448, the smallest positive one 2^-9. A tensor has one scale, which its largest absolute value
 * determines. cuda/kernels/fp8.cu computes the same results, bit for bit.
 */
#ifndef CORE_E4M3_H
#define CORE_E4M3_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define E4M3_LARGEST 448.0f
/*
 * A lower limit for the scale. With it, the smallest positive number times the scale is a normal number in
 * float32 and in bfloat16. So decoding a code and encoding the value again gives the same code.
 */
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

/*
 * Returns the scale of a tensor: the factor from its e4m3 numbers to its values. `amax` is the tensor's
 * largest absolute value, or infinity if any element is not finite.
 */
static inline float e4m3_scale(float amax)
{
    const float scale = amax / E4M3_LARGEST;

    return scale > E4M3_SMALLEST_SCALE ? scale : E4M3_SMALLEST_SCALE;
}

/*
 * Rounds to the nearest number, ties to even. Values beyond 448 become 448; a NaN stays a NaN. The function
 * has no branches, so compilers can vectorise loops over it.
 */
static inline uint8_t e4m3_of_f32(float value)
{
    const uint32_t bits = e4m3_bits(value), size = bits & 0x7fffffffu;
    /*
     * Rounds to nearest, ties to even, over the 20 bits that are dropped. A carry moves on into the exponent.
     */
    const uint32_t normal = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - ((127u - 7u) << 3);
    /*
     * Below 2^-6 the numbers are multiples of 2^-9. A float32 near 2^14 also has a last bit of 2^-9, so
     * adding 2^14 rounds to such a multiple.
     */
    const uint32_t small = e4m3_bits(e4m3_float(size) + 0x1p14f) - 0x46800000u;
    uint32_t code = size < 0x3c800000u ? small : normal; /* 2^-6 */

    code = size >= 0x43e00000u ? 0x7eu : code; /* 448 */
    code = size > 0x7f800000u ? (uint32_t)E4M3_NAN : code;
    return (uint8_t)(code | (bits >> 24 & 0x80u));
}

/* Returns the number of a code exactly. Both NaN codes give the same quiet NaN. */
static inline float e4m3_to_f32(uint8_t code)
{
    const uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
    const float size =
        exponent == 0 ? (float)mantissa * 0x1p-9f : e4m3_float((exponent + 127u - 7u) << 23 | mantissa << 20);

    if ((code & 0x7fu) == E4M3_NAN)
        return e4m3_float(0x7fc00000u);
    return (code & 0x80u) != 0 ? -size : size;
}

/*
 * Returns the value of `code` in a tensor whose largest absolute value is `amax`. If `amax` is not finite,
 * every code gives NaN.
 */
static inline float e4m3_value(uint8_t code, float amax)
{
    const float value = e4m3_to_f32(code);

    return value != value || e4m3_bits(amax) >= 0x7f800000u ? e4m3_float(0x7fc00000u)
                                                            : value * e4m3_scale(amax);
}

#endif
