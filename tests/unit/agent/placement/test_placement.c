#include "agent/placement/placement.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/placement/cpus.h"
#include "tests/unit/agent/placement/fake_root.h"

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

/* The GPUs of a machine of files, the CPUs that this process really has. */
Test(placement, workers_stand_where_the_gpus_that_they_see_are)
{
    char root[FAKE_ROOT_BYTES], visible[] = "CUDA_VISIBLE_DEVICES=1,0", text[CPU_MASK_TEXT_BYTES];
    char *environment[3] = { NULL };
    char variable[128];
    struct agent_config config;
    struct placement placement;
    struct cpu_mask allowed, first = { { 0 } }, rest;
    struct fsdp_err err = { 0 };

    cpus_allowed(&allowed);
    if (cpu_mask_count(&allowed) < 2)
        cr_skip_test("one CPU is no two nodes");
    cpu_mask_add(&first, cpu_mask_next(&allowed, -1));
    rest = allowed;
    rest.words[cpu_mask_next(&allowed, -1) / CPU_MASK_WORD_BITS] &=
        ~first.words[cpu_mask_next(&allowed, -1) / CPU_MASK_WORD_BITS];
    fake_root_make(root);
    fake_root_add(root, cpu_mask_text(&allowed, text), "/sys/devices/system/cpu/online");
    fake_root_add(root, cpu_mask_text(&first, text), "/sys/devices/system/node/node0/cpulist");
    fake_root_add(root, cpu_mask_text(&rest, text), "/sys/devices/system/node/node1/cpulist");
    for (int i = 0; i < 2; i++) {
        fake_root_add(root, i == 0 ? "Device Minor: 0\n" : "Device Minor: 1\n",
                      "/proc/driver/nvidia/gpus/0000:0%d:00.0/information", i + 1);
        fake_root_add(root, "", "/dev/nvidia%d", i);
        fake_root_add(root, i == 0 ? "0\n" : "1\n", "/sys/bus/pci/devices/0000:0%d:00.0/numa_node", i + 1);
    }
    snprintf(variable, sizeof variable, "FSDP_TEST_ROOT=%s", root);
    environment[0] = variable;
    environment[1] = visible;
    agent_config_init(&config);
    config.environment = environment;
    config.n_workers = 2;
    config.numa = AGENT_NUMA_NODE;

    cr_assert_eq(placement_init(&placement, &config, &err), FSDP_OK, "%s", err.message);
    cr_expect_eq(memcmp(&placement.cpus[0], &rest, sizeof rest), 0, "rank 0 sees GPU 1, which is at node 1");
    cr_expect_eq(memcmp(&placement.cpus[1], &first, sizeof first), 0);
    cr_expect_eq(placement.threads, 1);
    placement_fini(&placement);

    config.n_workers = 3; /* two of them at node 1, and one may be without a core of its own */
    config.numa = AGENT_NUMA_CORE_COMPLEX;
    cr_expect_eq(placement_init(&placement, &config, &err), FSDP_ERR_UNSUPPORTED);
    cr_expect(strstr(err.message, "--numa-binding core-complex: local rank 0: ") == err.message, "%s",
              err.message);
    placement_fini(&placement);
    fake_root_remove(root);
}
