/*
 * float8 e4m3 against its definition, which knows a table of numbers and distances between them, and nothing
 * of bits.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/e4m3.h"
#include "shard_runtime/core/rng.h"

enum { LARGEST = 0x7e };

/* What a code without its sign stands for. */
static double value_of(unsigned code)
{
    const int exponent = (int)(code >> 3), mantissa = (int)(code & 7u);

    return exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
}

Test(e4m3, every_code_is_its_number)
{
    for (unsigned code = 0; code < 256; code++) {
        const float value = e4m3_to_f32((uint8_t)code);
        const double size = value_of(code & 0x7fu);

        if ((code & 0x7fu) == E4M3_NAN) {
            cr_assert(e4m3_bits(value) == 0x7fc00000u, "%02x", code);
            continue;
        }
        cr_assert((double)value == (code & 0x80u ? -size : size) && (signbit(value) != 0) == (code >= 0x80u),
                  "%02x is %g", code, (double)value);
        cr_assert_eq(e4m3_of_f32(value), code);
    }
    cr_assert((double)E4M3_LARGEST == value_of(LARGEST));
}

/* Rounding is monotone: what holds on both sides of every middle, and on it, holds everywhere. */
Test(e4m3, every_middle_goes_to_the_even_code_and_its_neighbours_to_the_nearest)
{
    static const float larger[] = { 448, 463, 464, 465, 480, 1e30f, INFINITY };

    for (unsigned code = 0; code < LARGEST; code++) {
        const float middle = (float)((value_of(code) + value_of(code + 1)) / 2);

        for (unsigned sign = 0; sign < 2; sign++) {
            const float one = sign ? -1.0f : 1.0f;

            cr_assert_eq(e4m3_of_f32(one * middle), (code + code % 2) | sign << 7);
            cr_assert_eq(e4m3_of_f32(one * nextafterf(middle, 0)), code | sign << 7);
            cr_assert_eq(e4m3_of_f32(one * nextafterf(middle, 1000)), (code + 1) | sign << 7);
        }
    }
    for (int i = 0; i < 7; i++) {
        cr_assert_eq(e4m3_of_f32(larger[i]), LARGEST);
        cr_assert_eq(e4m3_of_f32(-larger[i]), LARGEST | 0x80);
    }
}

Test(e4m3, what_is_no_number_stays_none_with_its_sign)
{
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        const float value = bf16_to_f32((uint16_t)bits);

        if (isnan(value))
            cr_assert_eq(e4m3_of_f32(value), E4M3_NAN | (bits >> 8 & 0x80u));
    }
}

/*
 * The largest size is the largest code, whatever rounding the division does; nothing is lost by the smallest
 * scale.
 */
Test(e4m3, a_tensor_is_scaled_to_its_largest_size)
{
    cr_assert(e4m3_scale(448) == 1 && e4m3_scale(0) == E4M3_SMALLEST_SCALE);
    cr_assert(isinf(e4m3_scale(INFINITY)));
    for (uint64_t i = 0; i < 100000; i++) {
        /* from 2^-100 */
        const float amax = e4m3_float(0x0d800000u + (uint32_t)rng_below(5, i, 0x7f800000u - 0x0d800000u));
        const float scale = e4m3_scale(amax);

        if (amax < E4M3_LARGEST * E4M3_SMALLEST_SCALE)
            continue;
        cr_assert_eq(e4m3_of_f32(amax / scale), LARGEST, "%.9g", (double)amax);
        cr_assert(fabsf(e4m3_value(LARGEST, amax) - amax) <= amax * 0x1p-22f);
    }
    for (unsigned code = 0; code < 256; code++) {
        cr_assert(e4m3_bits(e4m3_value((uint8_t)code, INFINITY)) == 0x7fc00000u,
                  "not finite: nothing of it is");
        cr_assert(code == E4M3_NAN || code == 0xff || isfinite(e4m3_value((uint8_t)code, 3.4e38f)));
    }
}

/*
 * A slice is made of decoded weights again: each code must come back, of float32 and of bfloat16, at every
 * scale.
 */
Test(e4m3, what_is_decoded_is_encoded_to_the_same_code)
{
    for (uint64_t i = 0; i < 20000; i++) {
        const float amax = i < 4 ? (float[]){ 0, 1e-45f, 1e-38f, 3.4e38f }[i]
                                 : e4m3_float((uint32_t)rng_below(9, i, 0x7f7fffffu));

        for (unsigned code = 0; code < 256; code++) {
            const float value = e4m3_value((uint8_t)code, amax), scale = e4m3_scale(amax);
            const float half = bf16_to_f32(bf16_of_f32(value));

            if ((code & 0x7fu) == E4M3_NAN)
                continue;
            cr_assert_eq(e4m3_of_f32(value / scale), code, "%02x of %.9g", code, (double)amax);
            cr_assert_eq(e4m3_of_f32(half / scale), code, "%02x of %.9g", code, (double)amax);
        }
    }
}
