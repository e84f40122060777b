/*
 * What comm_grid, which compares every type, operation, size and place to the bit, does not see of the
 * reductions. These are bfloat16 next to its rounding, numbers that are none, and integers that wrap around.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

#include "shard_runtime/comm/reduce.h"

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

    cr_assert(rounded[0] == 0x3f80 && rounded[1] == 0x3f81 && rounded[2] == 0x3f82);
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

Test(reduce, integers_wrap_around)
{
    const int64_t p[2] = { INT64_MAX, 3 }, q[2] = { 1, -4 };
    int64_t sum[2];

    reduce_sources(sum, FSDP_I64, (const void *const[]){ p, q }, FSDP_I64, 2, 2, FSDP_SUM, 2);
    cr_assert(sum[0] == INT64_MIN && sum[1] == -1);
}
