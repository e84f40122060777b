#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

#include "shard_runtime/trainer/generate.h"

static const float logits[] = { 0.0f, 2.0f, -1.0f, 2.0f, 1.0f };
enum { N = sizeof logits / sizeof *logits };

Test(generate, temperature_zero_takes_the_largest_the_first_of_equals)
{
    for (double u = 0; u < 1; u += 0.1)
        cr_assert(eq(u32, generate_choose(logits, N, 0, 0, u), 1));
}

Test(generate, top_k_leaves_only_the_largest)
{
    for (double u = 0; u < 1; u += 0.01) {
        const uint32_t one = generate_choose(logits, N, 1, 1, u);
        const uint32_t three = generate_choose(logits, N, 1, 3, u);

        cr_assert(eq(u32, one, 1));
        cr_assert(three == 1 || three == 3 || three == 4, "%u", three);
    }
}

Test(generate, choices_follow_the_softmax)
{
    enum { GRID = 100000 };
    double total = 0;
    int count[N] = { 0 };

    for (int i = 0; i < GRID; i++)
        count[generate_choose(logits, N, 0.5, 0, (i + 0.5) / GRID)]++;
    for (int c = 0; c < N; c++)
        total += exp((double)logits[c] / 0.5);

    for (int c = 0; c < N; c++)
        cr_assert(fabs(count[c] - GRID * exp((double)logits[c] / 0.5) / total) <= 2, "class %d: %d", c,
                  count[c]);
}

Test(generate, the_ends_of_chance_are_classes_that_have_one)
{
    cr_assert(eq(u32, generate_choose(logits, N, 1, 0, 0), 0));
    cr_assert(eq(u32, generate_choose(logits, N, 1, 0, nextafter(1, 0)), 4));
    cr_assert(eq(u32, generate_choose(logits, N, 1, 2, 0), 1));
    cr_assert(eq(u32, generate_choose(logits, N, 1, 2, nextafter(1, 0)), 3));
}

Test(generate, huge_logits_do_not_overflow)
{
    const float huge[] = { 1e30f, -1e30f, 3e30f };

    cr_assert(eq(u32, generate_choose(huge, 3, 0.1, 0, 0.7), 2));
}
