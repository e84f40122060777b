#include "agent/world/hang.h"

#include <criterion/criterion.h>

static struct hang_rank rank_of(int i)
{
    return (struct hang_rank){ .n_collectives = (uint64_t)(i % 3),
                               .waits = i / 3 % 2,
                               .still_since_ns = i / 6 % 3 };
}

enum { N_RANKS = 18 };

Test(hang, one_that_has_not_come_holds_up_those_that_wait)
{
    const struct hang_rank behind = { .n_collectives = 6, .waits = true, .still_since_ns = 9 };
    const struct hang_rank waiting = { .n_collectives = 7, .waits = false, .still_since_ns = 1 };

    cr_expect(hang_is_blamed_before(&behind, &waiting));
    cr_expect(!hang_is_blamed_before(&waiting, &behind));
}

Test(hang, among_equals_one_outside_a_collective)
{
    const struct hang_rank computing = { .n_collectives = 7, .waits = false, .still_since_ns = 9 };
    const struct hang_rank waiting = { .n_collectives = 7, .waits = true, .still_since_ns = 1 };

    cr_expect(hang_is_blamed_before(&computing, &waiting));
    cr_expect(!hang_is_blamed_before(&waiting, &computing));
}

Test(hang, else_the_one_that_stood_still_first)
{
    const struct hang_rank first = { .n_collectives = 7, .waits = true, .still_since_ns = 1 };
    const struct hang_rank second = { .n_collectives = 7, .waits = true, .still_since_ns = 2 };

    cr_expect(hang_is_blamed_before(&first, &second));
    cr_expect(!hang_is_blamed_before(&second, &first));
}

/* So that the one found does not depend on the order in which ranks are looked at. */
Test(hang, blame_is_a_strict_order)
{
    for (int i = 0; i < N_RANKS; i++)
        for (int j = 0; j < N_RANKS; j++) {
            const struct hang_rank a = rank_of(i), b = rank_of(j);

            cr_assert_eq(hang_is_blamed_before(&a, &b) + hang_is_blamed_before(&b, &a), i != j, "%d and %d",
                         i, j);
            for (int k = 0; k < N_RANKS; k++) {
                const struct hang_rank c = rank_of(k);

                cr_assert(!hang_is_blamed_before(&a, &b) || !hang_is_blamed_before(&b, &c) ||
                              hang_is_blamed_before(&a, &c),
                          "%d, %d and %d", i, j, k);
            }
        }
}
