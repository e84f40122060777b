/* test_fully_shard_clip_grad_norm_.py: total norms of order 1, 2, 3 and infinity, over one and two mesh dimensions;
 * and over a dimension that shards and one that splits linears, where a gradient that is split counts once, and so does one that
 * every rank of the tensor group holds. */
#include <criterion/criterion.h>

#include "tests/unit/parity/case.h"

Test(parity_clip_grad_norm, every_order_over_one_and_two_dimensions, .timeout = 3000)
{
    static const char *const cases[] = { "clip-1", "transformer", "clip-3", "clip-inf" };
    static const struct way ways[] = { { .W = 1 }, { .W = 2 }, { .W = 5 }, { .W = 4, .replicate = 2 } };

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        case_expect(cases[c], ways, sizeof ways / sizeof *ways);
}

static void expect_of_split(const char *const *cases, size_t n_cases)
{
    static const struct way ways[] = {
        { .W = 2, .tensor = 2 },
        { .W = 4, .tensor = 2 },
        { .W = 4, .tensor = 4 },
        { .W = 6, .tensor = 2 },
        { .W = 8, .tensor = 2, .replicate = 2 },
    };

    for (size_t c = 0; c < n_cases; c++)
        case_expect(cases[c], ways, sizeof ways / sizeof *ways);
}

Test(parity_clip_grad_norm, every_order_over_shards_and_split_linears, .timeout = 3000)
{
    static const char *const cases[] = { "mlp-clip-1", "mlp", "mlp-clip-3", "mlp-clip-inf" };

    expect_of_split(cases, sizeof cases / sizeof *cases);
}

Test(parity_clip_grad_norm, every_order_over_shards_and_split_heads, .timeout = 3000)
{
    static const char *const cases[] = { "tensor-clip-1", "tensor", "tensor-clip-3", "tensor-clip-inf" };

    expect_of_split(cases, sizeof cases / sizeof *cases);
}
