/*
 * Where a sum of gradients is divided. The product of all that is done to it is one over the factor, for
 * every mesh. FSDP2's table is checked cell by cell.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "shard_runtime/plan/divide.h"

static double total(const struct plan_division *d, int W, int R)
{
    return (double)d->before * (d->reduce == FSDP_MEAN ? 1.0 / W : 1.0) *
           (d->all_reduce == FSDP_MEAN ? 1.0 / R : 1.0) * (double)d->after;
}

Test(plan_divide, divides_by_the_factor_in_all)
{
    for (int W = 1; W <= 8; W++)
        for (int R = 1; R <= 4; R++)
            for (int f = 0; f <= 12; f++)
                for (int sum = 0; sum < 2; sum++) {
                    const struct plan_division d = plan_divide(W, R, f, sum != 0);
                    const double want = 1.0 / (f > 0 ? f : W * R);

                    cr_assert(fabs(total(&d, W, R) - want) < 1e-6 * want, "W %d R %d f %d sum %d", W, R, f,
                              sum);
                    cr_assert(!sum || (d.reduce == FSDP_SUM && d.all_reduce == FSDP_SUM && d.before == 1.0f));
                    cr_assert(sum || d.after == 1.0f);
                }
}

Test(plan_divide, leaves_averaging_to_the_collectives_where_it_can)
{
    const struct plan_division plain = plan_divide(4, 2, 0, false), own = plan_divide(4, 2, 4, false),
                               other = plan_divide(4, 2, 16, false);

    cr_expect(plain.reduce == FSDP_MEAN && plain.all_reduce == FSDP_MEAN && plain.before == 1.0f);
    cr_expect(own.reduce == FSDP_MEAN && own.all_reduce == FSDP_SUM && own.before == 1.0f);
    cr_expect(other.reduce == FSDP_SUM && other.all_reduce == FSDP_SUM && other.before == 1.0f / 16);
}
