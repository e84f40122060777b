#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

#include "shard_runtime/core/rng.h"

/* Known answers of Philox4x32-10 from the authors' Random123 test vectors. */
Test(rng, philox_matches_known_answers)
{
    uint32_t out[4];

    rng_philox(0, 0, 0, out);
    cr_assert(eq(u32, out[0], 0x6627e8d5));
    cr_assert(eq(u32, out[1], 0xe169c58d));
    cr_assert(eq(u32, out[2], 0xbc57ac4c));
    cr_assert(eq(u32, out[3], 0x9b00dbd8));

    rng_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
    cr_assert(eq(u32, out[0], 0x408f276d));
    cr_assert(eq(u32, out[1], 0x41c83b0e));
    cr_assert(eq(u32, out[2], 0xa20bc7c6));
    cr_assert(eq(u32, out[3], 0x6d5451fd));
}

Test(rng, any_slice_equals_the_whole)
{
    float whole[103], slice[103];

    rng_fill_normal(42, 0, whole, 103, 0.02f);

    for (size_t first = 0; first < 103; first++) {
        for (size_t n = 0; n <= 103 - first; n += 7) {
            rng_fill_normal(42, first, slice, n, 0.02f);
            cr_assert_arr_eq(slice, whole + first, n * sizeof *slice, "first %zu n %zu", first, n);
        }
    }
}

Test(rng, normal_has_its_moments)
{
    enum { N = 200000 };
    static float x[N];
    double sum = 0, squares = 0;

    rng_fill_normal(7, 0, x, N, 2.0f);
    for (int i = 0; i < N; i++) {
        sum += x[i];
        squares += (double)x[i] * x[i];
    }

    cr_assert(lt(dbl, fabs(sum / N), 0.02));
    cr_assert(lt(dbl, fabs(sqrt(squares / N) - 2.0), 0.02));
}

Test(rng, below_stays_below)
{
    for (uint64_t bound = 1; bound < 50; bound++)
        for (uint64_t i = 0; i < 200; i++)
            cr_assert(lt(u64, rng_below(3, i, bound), bound));
}
