#include "agent/cpus.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <limits.h>
#include <sched.h>

struct quota_case {
    char text[48];
    int want;
};

static struct quota_case quota_cases[] = {
    { "max 100000", 0 },
    { "200000 100000", 2 },
    { "250000 100000", 2 },
    { "50000 100000", 1 },
    { "-1 100000", 0 },
    { "-1\n 100000\n", 0 },
    { "400000\n 100000\n", 4 },
    { "", 0 },
    { "100000", 0 },
    { "0 100000", 0 },
    { "100000 0", 0 },
    { "100000 max", 0 },
    { "99999999999999999999 1", 0 },
    { "9223372036854775807 1", INT_MAX },
};

ParameterizedTestParameters(cpus, quota)
{
    return cr_make_param_array(struct quota_case, quota_cases, sizeof quota_cases / sizeof *quota_cases);
}

ParameterizedTest(struct quota_case *c, cpus, quota)
{
    cr_expect_eq(cpus_of_quota(c->text), c->want, "\"%s\"", c->text);
}

Test(cpus, the_affinity_mask_limits)
{
    cpu_set_t all, one;

    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    cr_expect(cpus_available() >= 1 && cpus_available() <= CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_expect_eq(cpus_available(), 1);
}
