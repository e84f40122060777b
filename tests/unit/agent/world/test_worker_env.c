#include "agent/world/worker_env.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/environment.h"
#include "agent/world/worker.h"

static const struct agent_config four_workers = {
    .n_workers = 4,
    .role = "trainer",
    .run_id = "job7",
    .max_restarts = 3,
    .stop_signals_text = "SIGTERM,SIGUSR1",
};
static const struct world_plan second_of_2 = {
    .restart_count = 2,
    .world_size = 8,
    .first_rank = 4,
    .n_nodes = 2,
    .node_rank = 1,
    .role_rank = 2,
    .role_world_size = 6,
    .master_address = "10.0.0.1",
    .master_port = 29501,
};
static const struct worker_identity rank_5_of_8 = {
    .config = &four_workers,
    .plan = &second_of_2,
    .local_rank = 1,
    .threads = 6,
    .error_file = "/e/error.json",
    .run_dir = "/r",
    .timer_file = "/t",
    .link_fd = 11,
};

static char **environment; /* of the test's worker */

static void build(char *const *parent, const struct worker_identity *identity)
{
    free(environment);
    environment = worker_env_build(parent, identity);
    cr_assert_not_null(environment);
}

static void free_environment(void)
{
    free(environment);
}

TestSuite(worker_env, .fini = free_environment);

/* `want` NULL: the worker has no such variable. */
static void is(const char *name, const char *want)
{
    const char *value = environment_find(environment, name);

    cr_expect((value == NULL) == (want == NULL), "%s", name);
    if (value != NULL && want != NULL)
        cr_expect_str_eq(value, want, "%s is %s", name, value);
}

Test(worker_env, the_secret_is_not_handed_on)
{
    char *parent[] = { "HOME=/home/me", "FSDPRUN_SECRET=0123456789abcdef", "FSDPRUN_SECRET_FILE=/key",
                       "FSDPRUN_SECRETARY=1", NULL };

    build(parent, &rank_5_of_8);
    is("FSDPRUN_SECRET", NULL);
    is("FSDPRUN_SECRET_FILE", NULL);
    is("FSDPRUN_SECRETARY", "1"); /* only whole names count */
}

Test(worker_env, a_variable_of_the_parent_is_replaced)
{
    static const char *const wanted[][2] = { { "RANK", "5" },          { "ROLE_RANK", "3" },
                                             { "WORLD_SIZE", "8" },    { "FSDP_RUN_DIR", "/r" },
                                             { "FSDP_LINK_FD", "11" }, { "HOME", "/home/me" } };
    char *parent[] = { "HOME=/home/me",       "RANK=77", "WORLD_SIZE=99", "FSDP_LINK_FD=3",
                       "FSDP_RUN_DIR=/other", NULL };

    build(parent, &rank_5_of_8);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const size_t n_name = strlen(wanted[i][0]);
        int n = 0;

        for (char **at = environment; *at != NULL; at++)
            n += strncmp(*at, wanted[i][0], n_name) == 0 && (*at)[n_name] == '=';
        cr_expect_eq(n, 1, "%s stands there %d times", wanted[i][0], n);
        is(wanted[i][0], wanted[i][1]);
    }
}

Test(worker_env, ranks_of_identical_workers_are_those_of_the_world)
{
    static const char *const cases[][3] = {
        { "=1", "5", "8" }, { "=0", "3", "6" }, { "=", "3", "6" }, { "=11", "3", "6" }
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char variable[64], *parent[] = { variable, NULL };

        snprintf(variable, sizeof variable, "TORCH_ELASTIC_WORKER_IDENTICAL%s", cases[i][0]);
        build(parent, &rank_5_of_8);
        is("ROLE_RANK", cases[i][1]);
        is("ROLE_WORLD_SIZE", cases[i][2]);
        is("ROLE_NAME", "trainer");
    }
}

Test(worker_env, the_leaders_term_tells_orders_of_an_earlier_one)
{
    struct world_plan plan = second_of_2;
    struct worker_identity identity = rank_5_of_8;
    char *parent[] = { "FSDPRUN_TERM=7", NULL };

    plan.term = UINT64_MAX;
    identity.plan = &plan;
    build(parent, &identity);
    is("FSDPRUN_TERM", "18446744073709551615");
}

Test(worker_env, at_least_one_thread_and_no_link_or_directory_of_another_launcher)
{
    char *parent[] = { "FSDP_LINK_FD=9", "FSDP_RUN_DIR=/outer", "FSDPRUN_HEARTBEAT_FD=8", "FSDPRUN_TERM=7",
                       NULL };
    struct worker_identity identity = rank_5_of_8;

    identity.threads = 0;
    identity.link_fd = -1;
    identity.run_dir = identity.error_file = NULL;
    build(parent, &identity);
    is("OMP_NUM_THREADS", "1");
    is("FSDP_LINK_FD", NULL);
    is("FSDP_RUN_DIR", NULL);
    is("FSDPRUN_HEARTBEAT_FD", NULL);
    is("FSDPRUN_TERM", NULL);
    is("TORCHELASTIC_ERROR_FILE", "");
}

Test(worker_env, virtual_local_rank)
{
    static const struct {
        const char *list; /* NULL: the parent has none */
        int local_rank;
        const char *want;
    } cases[] = {
        { NULL, 2, "2" },
        { "CUDA_VISIBLE_DEVICES=4,5,6", 1, "5" },
        { "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b", 0, "GPU-a" },
        { "CUDA_VISIBLE_DEVICES=4", 1, "1" },
        { "CUDA_VISIBLE_DEVICES=", 1, "1" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *parent[] = { (char *)(uintptr_t)cases[i].list, NULL };
        struct worker_identity identity = rank_5_of_8;
        struct agent_config config = four_workers;

        config.virtual_local_rank = true;
        identity.config = &config;
        identity.local_rank = cases[i].local_rank;
        build(parent, &identity);
        is("LOCAL_RANK", "0");
        is("CUDA_VISIBLE_DEVICES", cases[i].want);
    }
}

Test(worker_env, an_environment_too_long_for_us_is_still_whole)
{
    static char long_dir[9000], long_id[9000];
    char *parent[] = { NULL };
    struct worker_identity identity = rank_5_of_8;
    struct agent_config config = four_workers;

    memset(long_dir, 'd', sizeof long_dir - 1);
    memset(long_id, 'i', sizeof long_id - 1);
    identity.run_dir = long_dir;
    identity.config = &config;
    config.run_id = long_id;
    build(parent, &identity);
    is("FSDP_RUN_DIR", long_dir);
    is("TORCHELASTIC_RUN_ID", long_id);
    is("FSDP_LINK_FD", "11");
}

/* What Python's string.Template makes of each; tests/conformance/test_cli_torchrun.sh asks it. */
static const char *const arguments[][2] = {
    { "plain", "plain" },
    { "", "" },
    { "${local_rank}", "12" },
    { "$local_rank", "12" },
    { "a${local_rank}b${local_rank}", "a12b12" },
    { "$local_rank/$local_rank.txt", "12/12.txt" },
    { "$local_ranks", "$local_ranks" },
    { "$local_rank2", "$local_rank2" },
    { "$Local_Rank", "$Local_Rank" },
    { "${local_ran}", "${local_ran}" },
    { "${local_rank", "${local_rank" },
    { "${ local_rank}", "${ local_rank}" },
    { "{$local_rank}", "{12}" },
    { "$$", "$" },
    { "$$$$", "$$" },
    { "$$local_rank", "$local_rank" },
    { "$$$local_rank", "$12" },
    { "$${local_rank}", "${local_rank}" },
    { "$", "$" },
    { "a$", "a$" },
    { "$1 $- ${}", "$1 $- ${}" },
    { "$\xc3\xa9", "$\xc3\xa9" },
};

Test(worker_env, an_empty_pythonpath_adds_no_entry_after_the_archive)
{
    char *empty[] = { "PYTHONPATH=", NULL }, *one[] = { "PYTHONPATH=/mine", NULL };
    struct worker_identity identity = rank_5_of_8;

    identity.stacks_fd = 13;
    identity.archive_fd = 12;
    build(empty, &identity);
    is("PYTHONPATH", "/proc/self/fd/12");
    build(one, &identity);
    is("PYTHONPATH", "/proc/self/fd/12:/mine");
}

Test(worker_env, argument)
{
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        char *argv[] = { "prog${local_rank}", (char *)(uintptr_t)arguments[i][0], "last", NULL };
        char **out = worker_env_args(argv, 12);

        cr_assert_not_null(out);
        cr_expect_str_eq(out[0], "prog${local_rank}");
        cr_expect_str_eq(out[1], arguments[i][1]);
        cr_expect_str_eq(out[2], "last");
        cr_expect_null(out[3]);
        free(out);
    }
}
