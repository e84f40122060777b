/*
 * Conversion: every bfloat16, rounding to nearest even against its definition, and the sizes around a block.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/cpu_cast.h"

enum { ALL = 65536 };

static bool is_nan(uint16_t bits)
{
    return (bits & 0x7fffu) > 0x7f80u;
}

Test(device_cast, every_bfloat16_survives_the_way_through_float32)
{
    static uint16_t all[ALL], back[ALL];
    static float wide[ALL];

    for (int i = 0; i < ALL; i++)
        all[i] = (uint16_t)i;
    cpu_cast_elems(wide, FSDP_F32, all, FSDP_BF16, ALL, 1.0f, false);
    cpu_cast_elems(back, FSDP_BF16, wide, FSDP_F32, ALL, 1.0f, false);

    for (int i = 0; i < ALL; i++)
        cr_assert(is_nan(all[i]) ? is_nan(back[i]) : back[i] == all[i], "%04x became %04x", all[i], back[i]);
}

/* Of the two neighbours of a float32 the nearer one, of two equally near ones the even one. */
Test(device_cast, rounds_to_the_nearest_neighbour_and_ties_to_even)
{
    for (uint32_t upper = 0; upper < 0x7f7fu; upper += 7)
        for (int place = -1; place <= 1; place++) {
            const uint32_t bits = (upper << 16) + 0x8000u + (uint32_t)place;
            const uint16_t want = (uint16_t)(place < 0   ? upper
                                             : place > 0 ? upper + 1
                                                         : upper + (upper & 1u));
            uint16_t got;
            float value;

            memcpy(&value, &bits, sizeof value);
            cpu_cast_elems(&got, FSDP_BF16, &value, FSDP_F32, 1, 1.0f, false);

            cr_assert(got == want, "%08x became %04x, not %04x", bits, got, want);
        }
}

static float as_float(const void *array, enum fsdp_dtype dtype, size_t i)
{
    return dtype == FSDP_F32 ? ((const float *)array)[i] : bf16_to_f32(((const uint16_t *)array)[i]);
}

Test(device_cast, scales_and_adds_in_float32_at_every_size_and_pair_of_dtypes)
{
    static const size_t sizes[] = { 0, 1, 2, 1023, 1024, 1025, 3000 };
    static const enum fsdp_dtype dtypes[] = { FSDP_F32, FSDP_BF16 };
    static float source[3001], start[3001], from[3001], to[3001], before[3001];

    rng_fill_normal(1, 0, source, 3001, 1.0f);
    rng_fill_normal(2, 0, start, 3001, 1.0f);
    for (int pair = 0; pair < 4; pair++)
        for (int flavour = 0; flavour < 4; flavour++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                const enum fsdp_dtype f = dtypes[pair & 1], t = dtypes[pair >> 1];
                const float scale = (flavour & 1) != 0 ? 0.375f : 1.0f;
                const bool accumulate = (flavour & 2) != 0;
                const size_t n = sizes[s];

                cpu_cast_elems(from, f, source, FSDP_F32, 3001, 1.0f, false);
                cpu_cast_elems(to, t, start, FSDP_F32, 3001, 1.0f, false);
                memcpy(before, to, sizeof to);
                cpu_cast_elems(to, t, from, f, n, scale, accumulate);

                for (size_t i = 0; i < 3001; i++) {
                    float want = as_float(before, t, i);

                    if (i < n)
                        want = (accumulate ? want : 0.0f) + scale * as_float(from, f, i);
                    if (t == FSDP_BF16)
                        want = bf16_to_f32(bf16_of_f32(want));
                    cr_assert(as_float(to, t, i) == want, "pair %d flavour %d n %zu element %zu", pair,
                              flavour, n, i);
                }
            }
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/*
 * Of all 65536 draws exactly as many go to the farther neighbour as the lost bits count: the mean over them
 * is the value.
 */
Test(device_rounding, the_mean_over_all_draws_is_the_value)
{
    static const uint32_t values[] = { 0x3f800001u, 0x3f807fffu, 0x3f808000u, 0x3f80ffffu,
                                       0xbf81abcdu, 0x00000001u, 0x80012345u, 0x007fffffu,
                                       0x3fffffffu, 0x7f7effffu, 0xff7e0001u };

    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        const uint16_t near_zero = (uint16_t)(values[v] >> 16);
        uint32_t n_up = 0;

        for (uint32_t draw = 0; draw < ALL; draw++) {
            const uint16_t got = bf16_of_f32_drawn(float_of(values[v]), draw);

            cr_assert(got == near_zero || got == near_zero + 1, "%08x became %04x", values[v], got);
            n_up += got != near_zero;
        }
        cr_expect_eq(n_up, values[v] & 0xffffu, "%08x: %u of 65536 up", values[v], n_up);
    }
}

/*
 * n draws with chance p: six deviations, sqrt(p (1 - p) / n) each, are passed once in 5e8 such sums; the
 * draws are fixed.
 */
Test(device_rounding, the_mean_over_elements_and_over_steps_is_near_the_value)
{
    enum { N = 40000 };
    static const double chances[] = { 0.01, 0.1, 0.25, 0.5, 0.9, 0.99 };
    static float from[N];
    static uint16_t to[N];

    for (size_t c = 0; c < sizeof chances / sizeof *chances; c++) {
        const double p = chances[c], bound = 6 * sqrt(p * (1 - p) / N);
        const float value = float_of(0x3f800000u + (uint32_t)(p * 65536));
        const double exact = (uint32_t)(p * 65536) / 65536.0;
        size_t n_up[2] = { 0 };

        for (size_t i = 0; i < N; i++)
            from[i] = value;
        cpu_round_elems(to, from, N, 7, 3, 12345);
        for (size_t i = 0; i < N; i++)
            n_up[0] += to[i] != 0x3f80u;
        for (uint64_t step = 0; step < N; step++) {
            cpu_round_elems(to, from, 1, 7, step, 5);
            n_up[1] += to[0] != 0x3f80u;
        }
        for (int way = 0; way < 2; way++)
            cr_expect(fabs((double)n_up[way] / N - exact) <= bound, "p = %g: %g", p, (double)n_up[way] / N);
    }
}

Test(device_rounding, what_bfloat16_has_stays_and_nothing_overflows_that_would_not_to_nearest)
{
    static const uint32_t draws[] = { 0, 1, 0x7fff, 0x8000, 0xffff };

    for (size_t d = 0; d < sizeof draws / sizeof *draws; d++) {
        for (uint32_t upper = 0; upper < ALL; upper++) {
            const uint16_t got = bf16_of_f32_drawn(float_of(upper << 16), draws[d]);

            cr_assert(is_nan((uint16_t)upper) ? is_nan(got) : got == upper, "%04x became %04x", upper, got);
        }
        for (uint32_t sign = 0; sign < 2; sign++)
            for (uint32_t lost = 1; lost < ALL; lost += 13) {
                const float largest = float_of(sign << 31 | 0x7f7f0000u | lost),
                            below = float_of(sign << 31 | 0x7f7e0000u | lost),
                            nan = float_of(sign << 31 | 0x7f800000u | lost);

                cr_assert_eq(bf16_of_f32_drawn(largest, draws[d]), bf16_of_f32(largest));
                cr_assert(fabsf(bf16_to_f32(bf16_of_f32_drawn(below, draws[d]))) <= float_of(0x7f7f0000u));
                cr_assert(is_nan(bf16_of_f32_drawn(nan, draws[d])));
            }
    }
}

/* However a tensor is cut; and another step, key or place draws anew. */
Test(device_rounding, an_element_has_its_own_draw_in_every_cut)
{
    enum { N = 1001 };
    static float from[N];
    static uint16_t whole[N], cut[N];
    static const size_t sizes[] = { 1, 2, 7, 8, 9, 333, N };

    for (size_t i = 0; i < N; i++)
        from[i] = float_of(0x3f808000u);
    cpu_round_elems(whole, from, N, 11, 4, 0);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        memset(cut, 0x5a, sizeof cut);
        for (size_t at = 0; at < N; at += sizes[s])
            cpu_round_elems(cut + at, from + at, N - at < sizes[s] ? N - at : sizes[s], 11, 4, at);
        cr_expect_arr_eq(cut, whole, sizeof whole, "pieces of %zu", sizes[s]);
    }
    for (int other = 0; other < 3; other++) {
        size_t n_same = 0;

        cpu_round_elems(cut, from, N, other == 0 ? 12 : 11, other == 1 ? 5 : 4, other == 2 ? 8 : 0);
        for (size_t i = 0; i < N; i++)
            n_same += cut[i] == whole[i];
        /* 6 deviations */
        cr_expect(n_same > N / 2 - 95 && n_same < N / 2 + 95, "%zu of %d are the same", n_same, N);
    }
}
