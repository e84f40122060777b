/* Products of float32 as three of bfloat16: what is left of a number, and how far a product is off. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/numerics/rows.h"
#include "tests/unit/numerics/rows.h"

FAST_ROWS_TEST(numerics_split, two_parts_are_the_number_to_16_bits)
{
    enum { N = 4099 };
    float *x = random_floats(1, N, 100.0f);
    uint16_t high[N], low[N];

    x[0] = INFINITY;
    x[1] = -INFINITY;
    x[2] = NAN;
    x[3] = 3.4e38f; /* rounds to infinity */
    x[4] = 0;
    ((const struct rows *)numerics->state)->kernels->split_bf16(x, high, low, N);

    for (size_t i = 4; i < N; i++) {
        const double sum = (double)bf16_to_f32(high[i]) + (double)bf16_to_f32(low[i]);

        cr_assert(high[i] == bf16_of_f32(x[i]));
        cr_assert(fabs(sum - (double)x[i]) <= 0x1p-16 * fabs((double)x[i]), "element %zu: %a of %a", i, sum,
                  (double)x[i]);
    }
    for (size_t i = 0; i < 4; i++)
        cr_assert(high[i] == bf16_of_f32(x[i]) && low[i] == 0, "element %zu", i);
}

#ifndef FSDP_WITHOUT_ONEDNN
/*
 * Asked for where it would only cost time, it changes no bit, and says so; not asked for, nobody speaks of
 * it.
 */
Test(numerics_split, without_amx_it_is_said_that_nothing_changes)
{
    struct numerics_config config = { .threads = 1, .name = "onednn" };
    struct numerics numerics;
    char line[256];

    for (int high = 0; high < 2; high++) {
        config.precision = high ? FSDP_MATMUL_HIGH : FSDP_MATMUL_HIGHEST;
        cr_assert(numerics_open(&numerics, &config, NULL) == FSDP_OK);
        numerics_describe(&numerics, line, sizeof line);
        cr_expect_eq(strstr(line, "as three products") != NULL, numerics.splits_products, "%s", line);
        cr_expect_eq(strstr(line, "high") != NULL, high && !numerics.splits_products, "%s", line);
        cr_expect_eq(strstr(line, "high without effect: no AMX") != NULL, high && !numerics.splits_products,
                     "%s", line);
        cr_expect_leq(numerics.splits_products, high, "%s", line);
        numerics_close(&numerics);
    }
}
#endif
