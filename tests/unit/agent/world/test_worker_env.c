#include "agent/world/worker_env.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/environment.h"

static const struct worker_identity rank_5_of_8 = {
    .rank = 5,
    .world_size = 8,
    .local_rank = 1,
    .local_world_size = 4,
    .node_rank = 1,
    .role_rank = 3,
    .role_world_size = 6,
    .n_nodes = 2,
    .role = "trainer",
    .run_id = "job7",
    .master_address = "10.0.0.1",
    .master_port = 29501,
    .agent_store = true,
    .restart_count = 2,
    .max_restarts = 3,
    .stop_signals = "SIGTERM,SIGUSR1",
    .threads = 6,
    .error_file = "/e/error.json",
    .run_dir = "/r",
    .timer_file = "/t",
    .link_fd = 11,
};

struct expected {
    char name[40], value[24]; /* no pointers: each case runs in a process of its own */
};

static struct expected wanted[] = {
    { "RANK", "5" },
    { "WORLD_SIZE", "8" },
    { "LOCAL_RANK", "1" },
    { "LOCAL_WORLD_SIZE", "4" },
    { "GROUP_RANK", "1" },
    { "GROUP_WORLD_SIZE", "2" },
    { "ROLE_NAME", "trainer" },
    { "ROLE_RANK", "3" },
    { "ROLE_WORLD_SIZE", "6" },
    { "MASTER_ADDR", "10.0.0.1" },
    { "MASTER_PORT", "29501" },
    { "TORCHELASTIC_RUN_ID", "job7" },
    { "TORCHELASTIC_RESTART_COUNT", "2" },
    { "TORCHELASTIC_MAX_RESTARTS", "3" },
    { "TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1" },
    { "TORCHELASTIC_USE_AGENT_STORE", "True" },
    { "TORCHELASTIC_ERROR_FILE", "/e/error.json" },
    { "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1" },
    { "OMP_NUM_THREADS", "6" },
    { "FSDP_RUN_DIR", "/r" },
    { "TORCHELASTIC_TIMER_FILE", "/t" },
    { "FSDP_LINK_FD", "11" },
    { "HOME", "/home/me" },
};

Test(worker_env, the_secret_is_not_handed_on)
{
    char *parent[] = { "HOME=/home/me", "FSDPRUN_SECRET=0123456789abcdef", "FSDPRUN_SECRET_FILE=/key",
                       "FSDPRUN_SECRETARY=1", NULL };
    char **environment = worker_env_build(parent, &rank_5_of_8);

    cr_assert_not_null(environment);
    cr_expect_null(environment_find(environment, "FSDPRUN_SECRET"));
    cr_expect_null(environment_find(environment, "FSDPRUN_SECRET_FILE"));
    cr_expect_not_null(environment_find(environment, "FSDPRUN_SECRETARY"), "only whole names count");
    free(environment);
}

ParameterizedTestParameters(worker_env, variable)
{
    return cr_make_param_array(struct expected, wanted, sizeof wanted / sizeof *wanted);
}

ParameterizedTest(struct expected *want, worker_env, variable)
{
    char *parent[] = { "HOME=/home/me",       "RANK=77", "WORLD_SIZE=99", "FSDP_LINK_FD=3",
                       "FSDP_RUN_DIR=/other", NULL };
    char **environment = worker_env_build(parent, &rank_5_of_8);
    int n = 0;

    cr_assert_not_null(environment);
    for (char **at = environment; *at != NULL; at++)
        n += strncmp(*at, want->name, strlen(want->name)) == 0 && (*at)[strlen(want->name)] == '=';
    cr_expect_eq(n, 1, "%s stands there %d times", want->name, n);
    cr_expect_str_eq(environment_find(environment, want->name), want->value);
    free(environment);
}

Test(worker_env, what_the_parent_set_for_threads_and_nccl_stays)
{
    char *parent[] = { "OMP_NUM_THREADS=3", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0", NULL };
    char **environment = worker_env_build(parent, &rank_5_of_8);

    cr_expect_str_eq(environment_find(environment, "OMP_NUM_THREADS"), "3");
    cr_expect_str_eq(environment_find(environment, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
    free(environment);
}

Test(worker_env, ranks_of_identical_workers_are_those_of_the_world)
{
    static const struct {
        char *word, *rank, *size;
    } cases[] = { { "=1", "5", "8" }, { "=0", "3", "6" }, { "=", "3", "6" }, { "=11", "3", "6" } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char variable[64], *parent[] = { variable, NULL }, **environment;

        snprintf(variable, sizeof variable, "TORCH_ELASTIC_WORKER_IDENTICAL%s", cases[i].word);
        environment = worker_env_build(parent, &rank_5_of_8);
        cr_expect_str_eq(environment_find(environment, "ROLE_RANK"), cases[i].rank, "%s", variable);
        cr_expect_str_eq(environment_find(environment, "ROLE_WORLD_SIZE"), cases[i].size, "%s", variable);
        cr_expect_str_eq(environment_find(environment, "ROLE_NAME"), "trainer");
        free(environment);
    }
}

Test(worker_env, at_least_one_thread_and_no_link_or_directory_of_another_launcher)
{
    char *parent[] = { "FSDP_LINK_FD=9", "FSDP_RUN_DIR=/outer", NULL };
    struct worker_identity identity = rank_5_of_8;
    char **environment;

    identity.threads = 0;
    identity.link_fd = -1;
    identity.run_dir = identity.error_file = NULL;
    environment = worker_env_build(parent, &identity);

    cr_expect_str_eq(environment_find(environment, "OMP_NUM_THREADS"), "1");
    cr_expect_null(environment_find(environment, "FSDP_LINK_FD"));
    cr_expect_null(environment_find(environment, "FSDP_RUN_DIR"));
    cr_expect_str_eq(environment_find(environment, "TORCHELASTIC_ERROR_FILE"), "");
    free(environment);
}

struct device_case {
    char list[40]; /* empty: the parent has none */
    int local_rank;
    char want[8];
};

static struct device_case device_cases[] = {
    { "", 2, "2" },
    { "CUDA_VISIBLE_DEVICES=4,5,6", 1, "5" },
    { "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b", 0, "GPU-a" },
    { "CUDA_VISIBLE_DEVICES=4", 1, "1" },
    { "CUDA_VISIBLE_DEVICES=", 1, "1" },
};

ParameterizedTestParameters(worker_env, virtual_local_rank)
{
    return cr_make_param_array(struct device_case, device_cases, sizeof device_cases / sizeof *device_cases);
}

ParameterizedTest(struct device_case *c, worker_env, virtual_local_rank)
{
    char *parent[] = { c->list[0] != '\0' ? c->list : NULL, NULL };
    struct worker_identity identity = rank_5_of_8;
    char **environment;

    identity.virtual_local_rank = true;
    identity.local_rank = c->local_rank;
    environment = worker_env_build(parent, &identity);

    cr_expect_str_eq(environment_find(environment, "LOCAL_RANK"), "0");
    cr_expect_str_eq(environment_find(environment, "CUDA_VISIBLE_DEVICES"), c->want);
    free(environment);
}

Test(worker_env, an_environment_too_long_for_us_is_still_whole)
{
    static char long_dir[9000], long_id[9000];
    char *parent[] = { NULL };
    struct worker_identity identity = rank_5_of_8;
    char **environment;

    memset(long_dir, 'd', sizeof long_dir - 1);
    memset(long_id, 'i', sizeof long_id - 1);
    identity.run_dir = long_dir;
    identity.run_id = long_id;
    environment = worker_env_build(parent, &identity);

    cr_assert_not_null(environment);
    cr_expect_str_eq(environment_find(environment, "FSDP_RUN_DIR"), long_dir);
    cr_expect_str_eq(environment_find(environment, "TORCHELASTIC_RUN_ID"), long_id);
    cr_expect_not_null(environment_find(environment, "FSDP_LINK_FD"));
    free(environment);
}

struct argument_case {
    char argument[40], want[40];
};

/* What Python's string.Template makes of each; tests/conformance/test_cli_torchrun.sh asks it. */
static struct argument_case argument_cases[] = {
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

ParameterizedTestParameters(worker_env, argument)
{
    return cr_make_param_array(struct argument_case, argument_cases,
                               sizeof argument_cases / sizeof *argument_cases);
}

ParameterizedTest(struct argument_case *c, worker_env, argument)
{
    char *argv[] = { "prog${local_rank}", c->argument, "last", NULL };
    char **out = worker_env_args(argv, 12);

    cr_assert_not_null(out);
    cr_expect_str_eq(out[0], "prog${local_rank}");
    cr_expect_str_eq(out[1], c->want);
    cr_expect_str_eq(out[2], "last");
    cr_expect_null(out[3]);
    free(out);
}
