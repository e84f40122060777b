#include "agent/placement/placement_search.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/os/descendants.h"
#include "agent/placement/cpus.h"
#include "tests/unit/agent/placement/fake_root.h"

#define ONE_GPU "GPU-a@01+MIG-b"

static uv_loop_t loop;
static int n_done;
static enum fsdp_status found_status;
static struct placement found_placement;
static char reason[FSDP_ERR_MESSAGE_BYTES];
static char root[FAKE_ROOT_BYTES], root_variable[FAKE_ROOT_BYTES + 32], nvml_variable[4096];
static char visible[] = "CUDA_VISIBLE_DEVICES=MIG-b";
static char *environment[] = { root_variable, nvml_variable, visible, NULL };
static struct agent_config config;

/* A machine of one node with one GPU, whose MIG devices only NVML knows. */
static void set_up(void)
{
    char text[CPU_MASK_TEXT_BYTES];
    struct cpu_mask allowed;

    cpus_allowed(&allowed);
    fake_root_make(root);
    fake_root_add(root, cpu_mask_text(&allowed, text), "/sys/devices/system/cpu/online");
    fake_root_add(root, cpu_mask_text(&allowed, text), "/sys/devices/system/node/node0/cpulist");
    fake_root_add(root, "Device Minor: 0\n", "/proc/driver/nvidia/gpus/0000:01:00.0/information");
    fake_root_add(root, "", "/dev/nvidia0");
    fake_root_add(root, "0\n", "/sys/bus/pci/devices/0000:01:00.0/numa_node");
    snprintf(root_variable, sizeof root_variable, "FSDP_TEST_ROOT=%s", root);
    snprintf(nvml_variable, sizeof nvml_variable, "FSDP_TEST_NVML=%s", BUILD_DIR "/test/fake_nvml");
    agent_config_init(&config);
    environ = environment;
    config.n_workers = 3;
    config.numa = AGENT_NUMA_NODE;
    cr_assert_eq(uv_loop_init(&loop), 0);
}

/* Whoever looked is dead: nothing waits for NVML any more. */
static void tear_down(void)
{
    pid_t pid;

    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0, "a handle was left open");
    while ((pid = wait(NULL)) > 0 || errno == EINTR)
        continue;
    placement_fini(&found_placement);
    fake_root_remove(root);
}

TestSuite(placement_search, .init = set_up, .fini = tear_down, .timeout = 600);

static void on_done(void *arg, const struct placement *found, enum fsdp_status status, const char *why)
{
    cr_assert(arg == &loop);
    n_done++;
    found_status = status;
    found_placement = *found;
    snprintf(reason, sizeof reason, "%s", why != NULL ? why : "");
}

static struct placement_search *begin(const char *nvml, uint64_t within_ms)
{
    struct placement_search *search;
    struct fsdp_err err = { 0 };

    setenv("FAKE_NVML", nvml, 1);
    cr_assert_eq(placement_search_begin(&search, &loop, &config, within_ms, on_done, &loop, &err), FSDP_OK,
                 "%s", err.message);
    return search;
}

static void run_until_found(enum fsdp_status status, const char *words)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(n_done == 1 && found_status == status, "%s", reason);
    cr_assert_str_eq(reason, words);
    cr_assert((found_placement.cpus != NULL) == (status == FSDP_OK));
}

/* Also of so many workers that the masks do not fit a pipe: then the answer is put together of pieces. */
Test(placement_search, it_finds_what_a_look_from_here_finds)
{
    for (int n_workers = 3; n_workers <= 1000; n_workers += 997) {
        struct placement here;

        config.n_workers = n_workers;
        n_done = 0;
        placement_fini(&found_placement);
        setenv("FAKE_NVML", ONE_GPU, 1);
        cr_assert_eq(placement_init(&here, &config, NULL), FSDP_OK);
        begin(ONE_GPU, 50000);
        run_until_found(FSDP_OK, "");
        cr_expect_eq(found_placement.threads, here.threads);
        cr_expect_eq(memcmp(found_placement.cpus, here.cpus, (size_t)n_workers * sizeof *here.cpus), 0);
        placement_fini(&here);
    }
}

Test(placement_search, an_nvml_that_hangs_is_left_at_the_bound)
{
    begin("hang", 300);
    run_until_found(FSDP_ERR_UNSUPPORTED,
                    "--numa-binding node: the machine's drivers did not answer within 0.3 s");
}

Test(placement_search, one_that_is_cancelled_is_not_heard_of)
{
    placement_search_cancel(begin("hang", 50000));
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 10; i++) {
        struct placement_search *search = begin(ONE_GPU, 50000);

        for (int turns = 0; turns < i && n_done == 0; turns++)
            uv_run(&loop, UV_RUN_ONCE); /* it may have come by now, and then it is gone */
        if (n_done == 0)
            placement_search_cancel(search);
        uv_run(&loop, UV_RUN_DEFAULT);
        placement_fini(&found_placement);
        n_done = 0;
    }
    placement_search_cancel(NULL);
}

Test(placement_search, one_whose_process_is_killed_says_so)
{
    begin("hang", 50000);
    descendants_signal(SIGKILL, NULL, 0);
    run_until_found(FSDP_ERR_IO, "--numa-binding node: the process that looked at the machine ended");
}
