/* test_fully_shard_clip_grad_norm_.py: total norms of order 1, 2, 3 and infinity, over one and two mesh dimensions. */
#include <criterion/criterion.h>

#include "tests/unit/parity/case.h"

Test(parity_clip_grad_norm, every_order_over_one_and_two_dimensions, .timeout = 300)
{
    static const char *const cases[] = { "clip-1", "transformer", "clip-3", "clip-inf" };
    static const struct way ways[] = { { .W = 1 }, { .W = 2 }, { .W = 5 }, { .W = 4, .replicate = 2 } };

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        case_expect(cases[c], ways, sizeof ways / sizeof *ways);
}
