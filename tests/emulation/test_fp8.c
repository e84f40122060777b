#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "shard_runtime/core/e4m3.h"
#include "shard_runtime/device/cpu_float8.h"
#include "tests/emulation/cases.h"

TestSuite(emulated_fp8, .fini = cases_end);

/*
 * Each code's value, the middle to the next, the floats on both sides of the middle, and what is too large or
 * no number. On the CPU, tests/unit/core/test_e4m3.c holds them to the format's definition.
 */
Test(emulated_fp8, rounds_as_on_the_cpu_everywhere)
{
    enum { N = 0x7e * 8 + 5 };
    float in[N] = { 449, 1e30f, INFINITY, -INFINITY, NAN }, amax = 448;
    uint8_t expected[N], out[N];
    size_t at = 5;

    for (unsigned code = 0; code < 0x7e; code++) {
        const float value = e4m3_to_f32((uint8_t)code),
                    middle = (value + e4m3_to_f32((uint8_t)(code + 1))) / 2;
        const float points[4] = { value, middle, nextafterf(middle, 0), nextafterf(middle, 1000) };

        for (int i = 0; i < 8; i++)
            in[at++] = i < 4 ? points[i] : -points[i - 4];
    }

    cr_assert_eq(kernel_fp8_quantise(NULL, in, N, FSDP_F32, &amax, out), 0);

    cpu_float8_encode(expected, in, FSDP_F32, N, &amax);
    for (int i = 0; i < N; i++)
        cr_assert_eq(out[i], expected[i], "%.9g is %02x, not %02x", (double)in[i], out[i], expected[i]);
}

struct tensor_case {
    struct operand x, amax, codes, back,
        other; /* codes: as float32, four to each; back and other: of either dtype */
};

static int run_round_trip(void *context)
{
    struct tensor_case *c = context;
    const size_t n = c->x.n_elems;

    return kernel_fp8_amax(NULL, c->x.data, n, c->x.dtype, c->amax.data) |
           kernel_fp8_quantise(NULL, c->x.data, n, c->x.dtype, c->amax.data, c->codes.data) |
           kernel_fp8_dequantise(NULL, c->codes.data, n, c->amax.data, c->back.data, c->back.dtype) |
           kernel_fp8_dequantise(NULL, c->codes.data, n, c->amax.data, c->other.data, c->other.dtype);
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
        float amax = 0;

        c.x = operand_random(v / 4 % 2 ? FSDP_BF16 : FSDP_F32, n, v, deviations[v / 8]);
        c.amax = operand_random(FSDP_F32, 1, 0, 0.0f);
        ((float *)c.amax.data)[0] = 0;
        c.codes = operand_empty(FSDP_F32, (n + 3) / 4);
        c.back = operand_empty(FSDP_F32, n);
        c.other = operand_empty(FSDP_BF16, n);

        under_schedules(run_round_trip, &c, &c.amax, &c.codes, &c.back, &c.other, NULL);

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
