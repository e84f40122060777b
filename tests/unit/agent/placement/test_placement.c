#include "agent/placement/placement.h"

#include <criterion/criterion.h>

#include "agent/placement/cpus.h"

Test(placement, unbound_workers_divide_what_is_available)
{
    struct agent_config config;
    struct placement placement;

    agent_config_init(&config);
    config.n_workers = 1;
    cr_assert_eq(placement_init(&placement, &config, NULL), FSDP_OK);
    cr_expect_null(placement.cpus);
    cr_expect_eq(placement.threads, cpus_available());
    placement_fini(&placement);
    config.n_workers = 100000;
    cr_assert_eq(placement_init(&placement, &config, NULL), FSDP_OK);
    cr_expect_eq(placement.threads, 1, "at least one");
    placement_fini(&placement);
    config.threads = 7;
    cr_assert_eq(placement_init(&placement, &config, NULL), FSDP_OK);
    cr_expect_eq(placement.threads, 7, "what was asked for");
    placement_fini(&placement);
}

Test(placement, threads_of_bound_workers_keep_within_the_quota)
{
    cr_expect_eq(placement_threads(8, 0, 4), 8, "no quota");
    cr_expect_eq(placement_threads(8, 64, 4), 8, "a wide one");
    cr_expect_eq(placement_threads(8, 12, 4), 3, "a share of it");
    cr_expect_eq(placement_threads(8, 2, 4), 1, "less than one CPU a worker");
    cr_expect_eq(placement_threads(1, 1, 1), 1);
}
