/*
 * The arithmetic of the reductions against a sum written out by hand: order, rounding, NaN, lengths around a block.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/reduce.h"

enum { N = 2050 };

static float a[N], b[N], c[N], out[N];
static const void *const abc[] = { a, b, c };

static void fill(void)
{
    for (int i = 0; i < N; i++) {
        a[i] = sinf((float)i) * 1e6f;
        b[i] = cosf((float)i) * 1e-3f;
        c[i] = -a[i] + (float)i;
    }
}

Test(reduce, float32_is_summed_in_the_order_given_at_every_length)
{
    static const size_t lengths[] = { 0, 1, 3, 1023, 1024, 1025, 2048, N };

    fill();
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        memset(out, 0x5a, sizeof out);
        reduce_sources(out, FSDP_F32, abc, FSDP_F32, 3, lengths[k], FSDP_SUM, 3);
        for (size_t i = 0; i < N; i++) {
            const float sum = a[i] + b[i];
            const float want = sum + c[i];

            if (i < lengths[k])
                cr_assert(out[i] == want, "element %zu of %zu", i, lengths[k]);
            else
                cr_assert(memcmp(&out[i], "\x5a\x5a\x5a\x5a", 4) == 0, "element %zu behind %zu", i,
                          lengths[k]);
        }
    }
}

Test(reduce, the_result_may_take_a_sources_place)
{
    static float want[N];

    for (int which = 0; which < 3; which++) {
        fill();
        reduce_sources(want, FSDP_F32, abc, FSDP_F32, 3, N, FSDP_MEAN, 3);
        reduce_sources((void *)(uintptr_t)abc[which], FSDP_F32, abc, FSDP_F32, 3, N, FSDP_MEAN, 3);
        cr_assert(memcmp(abc[which], want, sizeof want) == 0, "source %d", which);
    }
}

Test(reduce, a_mean_divides_the_sum_once)
{
    fill();
    reduce_sources(out, FSDP_F32, abc, FSDP_F32, 3, N, FSDP_MEAN, 6);
    for (int i = 0; i < N; i++) {
        const float sum = a[i] + b[i];
        const float all = sum + c[i];

        cr_assert(out[i] == all / 6.0f, "element %d", i);
    }
}

Test(reduce, bfloat16_is_summed_in_float32_and_rounded_once_to_even)
{
    /* 1 + 2^-8 is half way between two bfloat16: to even, down; with 2^-8 more it is one exactly. */
    const uint16_t one[3] = { 0x3f80, 0x3f80, 0x3f81 }, half_ulp[3] = { 0x3b80, 0x3b80, 0x3b80 };
    const uint16_t zero_or_half[3] = { 0x0000, 0x3b80, 0x0000 };
    const void *const sources[] = { one, half_ulp, zero_or_half };
    uint16_t rounded[3];
    float wide[3];

    reduce_sources(rounded, FSDP_BF16, sources, FSDP_BF16, 3, 3, FSDP_SUM, 3);
    reduce_sources(wide, FSDP_F32, sources, FSDP_BF16, 3, 3, FSDP_SUM, 3);

    cr_assert_eq(rounded[0], 0x3f80);
    cr_assert_eq(rounded[1], 0x3f81);
    cr_assert_eq(rounded[2], 0x3f82);
    cr_assert(wide[0] == 1.00390625f);
    reduce_sources(rounded, FSDP_BF16, (const void *const[]){ wide }, FSDP_F32, 1, 3, FSDP_SUM, 3);
    cr_assert_eq(rounded[0], 0x3f80);
}

Test(reduce, not_a_number_is_seen_by_sum_and_max)
{
    static const enum fsdp_reduce_op ops[] = { FSDP_SUM, FSDP_MEAN, FSDP_MAX };

    for (int where = 0; where < 3; where++)
        for (size_t k = 0; k < 3; k++) {
            float x[3] = { 1, 2, 3 }, result;
            const void *const sources[] = { &x[0], &x[1], &x[2] };
            uint16_t narrow;

            x[where] = NAN;
            reduce_sources(&result, FSDP_F32, sources, FSDP_F32, 3, 1, ops[k], 3);
            cr_assert(isnan(result), "source %d, op %zu", where, k);
            reduce_sources(&narrow, FSDP_BF16, sources, FSDP_F32, 3, 1, ops[k], 3);
            cr_assert((narrow & 0x7fff) > 0x7f80, "source %d, op %zu", where, k);
        }
}

Test(reduce, doubles_and_integers)
{
    const double x[2] = { 1e300, 3 }, y[2] = { 1, -4 };
    const int64_t p[2] = { INT64_MAX, 3 }, q[2] = { 1, -4 };
    double d[2];
    int64_t i[2];

    reduce_sources(d, FSDP_F64, (const void *const[]){ x, y }, FSDP_F64, 2, 2, FSDP_SUM, 2);
    cr_assert(d[0] == 1e300 && d[1] == -1);
    reduce_sources(d, FSDP_F64, (const void *const[]){ x, y }, FSDP_F64, 2, 2, FSDP_MAX, 2);
    cr_assert(d[0] == 1e300 && d[1] == 3);
    reduce_sources(d, FSDP_F64, (const void *const[]){ x, y }, FSDP_F64, 2, 2, FSDP_MEAN, 4);
    cr_assert(d[1] == -0.25);
    reduce_sources(i, FSDP_I64, (const void *const[]){ p, q }, FSDP_I64, 2, 2, FSDP_SUM, 2);
    cr_assert(i[0] == INT64_MIN && i[1] == -1, "it wraps around");
    reduce_sources(i, FSDP_I64, (const void *const[]){ p, q }, FSDP_I64, 2, 2, FSDP_MAX, 2);
    cr_assert(i[0] == INT64_MAX && i[1] == 3);
}
