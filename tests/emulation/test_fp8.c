#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "shard_runtime/device/cpu_float8.h"
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
    float amax = 448, out[256];

    for (unsigned i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;

    cr_assert_eq(kernel_fp8_dequantise(NULL, codes, 256, &amax, out, FSDP_F32), 0);

    for (unsigned i = 0; i < 256; i++)
        cr_assert(isnan(value_of(i)) ? isnan(out[i]) : (double)out[i] == value_of(i), "code %02x is %g", i,
                  (double)out[i]);
}

/* Each code's value, the middle to the next, and the floats on both sides of the middle. */
Test(emulated_fp8, rounds_to_nearest_even_everywhere)
{
    enum { N = 0x7e * 8 };
    float in[N], amax = 448;
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

    cr_assert_eq(kernel_fp8_quantise(NULL, in, N, FSDP_F32, &amax, out), 0);

    for (int i = 0; i < N; i++)
        cr_assert_eq(out[i], expected[i], "%.9g is %02x, not %02x", (double)in[i], out[i], expected[i]);
}

Test(emulated_fp8, clamps_what_is_too_large_and_keeps_nan)
{
    const float in[] = { 449, 1e30f, INFINITY, -INFINITY, NAN };
    const uint8_t expected[] = { 0x7e, 0x7e, 0x7e, 0xfe, 0x7f };
    float amax = 448;
    uint8_t out[5];

    cr_assert_eq(kernel_fp8_quantise(NULL, in, 5, FSDP_F32, &amax, out), 0);

    for (int i = 0; i < 5; i++)
        cr_assert_eq(out[i] & (i == 4 ? 0x7f : 0xff), expected[i], "%g is %02x", (double)in[i], out[i]);
}

struct tensor_case {
    struct operand x, amax, codes, back,
        other; /* codes: as float32, four to each; back and other: of either dtype */
};

static void run_round_trip(void *context)
{
    struct tensor_case *c = context;
    const size_t n = c->x.n_elems;

    cr_assert_eq(kernel_fp8_amax(NULL, c->x.data, n, c->x.dtype, c->amax.data), 0);
    cr_assert_eq(kernel_fp8_quantise(NULL, c->x.data, n, c->x.dtype, c->amax.data, c->codes.data), 0);
    cr_assert_eq(kernel_fp8_dequantise(NULL, c->codes.data, n, c->amax.data, c->back.data, c->back.dtype), 0);
    cr_assert_eq(kernel_fp8_dequantise(NULL, c->codes.data, n, c->amax.data, c->other.data, c->other.dtype),
                 0);
}

/* Bit for bit: what ranks on either device gather must be one model. */
Test(emulated_fp8, a_tensor_is_what_it_is_on_the_cpu)
{
    static const size_t sizes[] = { 1, 5, 255, 3000 };
    static const float deviations[] = { 30.0f, 0.02f, 1e-33f, 1e37f };
    static float wide[3000], wide_back[3000];
    static uint16_t half_back[3000];
    static uint8_t codes[3000];

    for (size_t v = 0; v < 32; v++) {
        const size_t n = sizes[v % 4];
        struct tensor_case c;
        struct operand *outputs[] = { &c.amax, &c.codes, &c.back, &c.other };
        float amax = 0;

        c.x = operand_random(v / 4 % 2 ? FSDP_BF16 : FSDP_F32, n, v, deviations[v / 8]);
        c.amax = operand_random(FSDP_F32, 1, 0, 0.0f);
        ((float *)c.amax.data)[0] = 0;
        c.codes = operand_empty(FSDP_F32, (n + 3) / 4);
        c.back = operand_empty(FSDP_F32, n);
        c.other = operand_empty(FSDP_BF16, n);

        under_schedules(run_round_trip, &c, outputs, 4);

        memcpy(wide, c.x.values, n * sizeof *wide);
        cpu_float8_amax(&amax, wide, n);
        cpu_float8_encode(codes, c.x.data, c.x.dtype, n, &amax);
        cpu_float8_decode(wide_back, FSDP_F32, codes, n, &amax);
        cpu_float8_decode(half_back, FSDP_BF16, codes, n, &amax);
        cr_assert(c.amax.values[0] == amax && (double)amax == largest_of(c.x.values, n));
        cr_assert_eq(memcmp(c.codes.data, codes, n), 0, "codes of %zu, case %zu", n, v);
        cr_assert_eq(memcmp(c.back.data, wide_back, n * sizeof *wide_back), 0, "float32 of %zu, case %zu", n,
                     v);
        cr_assert_eq(memcmp(c.other.data, half_back, n * sizeof *half_back), 0, "bfloat16 of %zu, case %zu",
                     n, v);
        cases_end();
    }
}

/* Every code under every kind of scale: tiny, none, not finite. */
Test(emulated_fp8, every_code_is_decoded_as_on_the_cpu)
{
    const float sizes[] = { 0, 1e-45f, 1e-38f, 0.3f, 448, 3.4e38f, INFINITY };
    uint8_t codes[256];
    uint16_t half[256], want_half[256];
    float out[256], want[256];

    for (unsigned i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        cr_assert_eq(kernel_fp8_dequantise(NULL, codes, 256, &sizes[s], out, FSDP_F32), 0);
        cr_assert_eq(kernel_fp8_dequantise(NULL, codes, 256, &sizes[s], half, FSDP_BF16), 0);
        cpu_float8_decode(want, FSDP_F32, codes, 256, &sizes[s]);
        cpu_float8_decode(want_half, FSDP_BF16, codes, 256, &sizes[s]);

        cr_assert_eq(memcmp(out, want, sizeof out), 0, "largest %g", (double)sizes[s]);
        cr_assert_eq(memcmp(half, want_half, sizeof half), 0, "largest %g", (double)sizes[s]);
    }
}

Test(emulated_fp8, zeros_stay_zeros_and_what_is_not_finite_counts_as_infinity)
{
    float zeros[3] = { 0, -0.0f, 0 }, amax = 0;
    uint8_t codes[3];

    cr_assert_eq(kernel_fp8_amax(NULL, zeros, 3, FSDP_F32, &amax), 0);
    cr_assert_eq(kernel_fp8_quantise(NULL, zeros, 3, FSDP_F32, &amax, codes), 0);
    cr_assert(amax == 0 && codes[0] == 0 && codes[1] == 0x80);

    for (int i = 0; i < 2; i++) {
        zeros[1] = i == 0 ? NAN : -INFINITY;
        amax = 0;
        cr_assert_eq(kernel_fp8_amax(NULL, zeros, 3, FSDP_F32, &amax), 0);
        cr_assert(isinf(amax));
    }
}
