#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/emulation/cases.h"

TestSuite(emulated_fp8, .fini = cases_end);

/* What a code stands for, from the format's definition. */
static double value_of(unsigned code)
{
    const int exponent = (int)(code >> 3 & 15u), mantissa = (int)(code & 7u);
    const double size = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);

    return (code & 0x7fu) == 0x7fu ? NAN : code & 0x80u ? -size : size;
}

Test(emulated_fp8, every_code_is_read)
{
    uint8_t codes[256];
    float scale = 1, out[256];

    for (unsigned i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;

    cr_assert_eq(kernel_fp8_dequantise(NULL, codes, 256, &scale, out, FSDP_F32), 0);

    for (unsigned i = 0; i < 256; i++)
        cr_assert(isnan(value_of(i)) ? isnan(out[i]) : (double)out[i] == value_of(i), "code %02x is %g", i,
                  (double)out[i]);
}

/* Each code's value, the middle to the next, and the floats on both sides of the middle. */
Test(emulated_fp8, rounds_to_nearest_even_everywhere)
{
    enum { N = 0x7e * 8 };
    float in[N], amax = 448, scale;
    uint8_t expected[N], out[N];

    for (unsigned code = 0, at = 0; code < 0x7e; code++) {
        const float value = (float)value_of(code),
                    middle = (float)((value_of(code) + value_of(code + 1)) / 2);
        const float points[4] = { value, middle, nextafterf(middle, 0), nextafterf(middle, 1000) };
        const unsigned nearest[4] = { code, code + code % 2, code, code + 1 };

        for (int i = 0; i < 4; i++) {
            in[at] = points[i];
            expected[at++] = (uint8_t)nearest[i];
            in[at] = -points[i];
            expected[at++] = (uint8_t)(nearest[i] | 0x80u);
        }
    }

    cr_assert_eq(kernel_fp8_quantise(NULL, in, N, FSDP_F32, &amax, &scale, out), 0);

    cr_assert_float_eq(scale, 1, 0);
    for (int i = 0; i < N; i++)
        cr_assert_eq(out[i], expected[i], "%.9g is %02x, not %02x", (double)in[i], out[i], expected[i]);
}

Test(emulated_fp8, clamps_what_is_too_large_and_keeps_nan)
{
    const float in[] = { 449, 1e30f, INFINITY, -INFINITY, NAN };
    const uint8_t expected[] = { 0x7e, 0x7e, 0x7e, 0xfe, 0x7f };
    float amax = 448, scale;
    uint8_t out[5];

    cr_assert_eq(kernel_fp8_quantise(NULL, in, 5, FSDP_F32, &amax, &scale, out), 0);

    for (int i = 0; i < 5; i++)
        cr_assert_eq(out[i] & (i == 4 ? 0x7f : 0xff), expected[i], "%g is %02x", (double)in[i], out[i]);
}

struct tensor_case {
    struct operand x, amax, scale, codes, back; /* codes: as float32, four to each */
};

static void run_round_trip(void *context)
{
    struct tensor_case *c = context;
    const size_t n = c->x.n_elems;

    cr_assert_eq(kernel_fp8_amax(NULL, c->x.data, n, c->x.dtype, c->amax.data), 0);
    cr_assert_eq(
        kernel_fp8_quantise(NULL, c->x.data, n, c->x.dtype, c->amax.data, c->scale.data, c->codes.data), 0);
    cr_assert_eq(kernel_fp8_dequantise(NULL, c->codes.data, n, c->scale.data, c->back.data, c->x.dtype), 0);
}

Test(emulated_fp8, a_tensor_survives_within_a_sixteenth)
{
    static const size_t sizes[] = { 1, 5, 255, 3000 };

    for (size_t v = 0; v < 8; v++) {
        const size_t n = sizes[v % 4];
        struct tensor_case c;
        struct operand *outputs[] = { &c.amax, &c.scale, &c.codes, &c.back };

        c.x = operand_random(v / 4 ? FSDP_BF16 : FSDP_F32, n, v, 30.0f);
        c.amax = operand_random(FSDP_F32, 1, 0, 0.0f);
        ((float *)c.amax.data)[0] = 0;
        c.scale = operand_empty(FSDP_F32, 1);
        c.codes = operand_empty(FSDP_F32, (n + 3) / 4);
        c.back = operand_empty(c.x.dtype, n);

        under_schedules(run_round_trip, &c, outputs, 4);

        cr_assert_eq((double)c.amax.values[0], largest_of(c.x.values, n));
        cr_assert_eq(c.scale.values[0], c.amax.values[0] / 448.0f);
        /* 3 bits of mantissa: half a unit is a sixteenth of the number; below 2^-6 it is 2^-10 of the scale. */
        for (size_t i = 0; i < n; i++)
            cr_assert(fabs((double)c.back.values[i] - (double)c.x.values[i]) <=
                          fabs((double)c.x.values[i]) * (1.0 / 16 + 0.005) +
                              (double)c.scale.values[0] * 0x1p-10,
                      "%g came back as %g", (double)c.x.values[i], (double)c.back.values[i]);
        cases_end();
    }
}

Test(emulated_fp8, zeros_have_scale_1_and_a_nan_is_seen)
{
    float zeros[3] = { 0, -0.0f, 0 }, amax = 0, scale;
    uint8_t codes[3];

    cr_assert_eq(kernel_fp8_amax(NULL, zeros, 3, FSDP_F32, &amax), 0);
    cr_assert_eq(kernel_fp8_quantise(NULL, zeros, 3, FSDP_F32, &amax, &scale, codes), 0);
    cr_assert_eq(scale, 1);
    cr_assert_eq(codes[1], 0x80);

    zeros[1] = NAN;
    cr_assert_eq(kernel_fp8_amax(NULL, zeros, 3, FSDP_F32, &amax), 0);
    cr_assert(isnan(amax));
}
