#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/job_input.h"
#include "launcher/launch.h"

static const char *variables[8][2];

static const char *get_env(void *arg, const char *name)
{
    (void)arg;
    for (size_t i = 0; i < 8 && variables[i][0] != NULL; i++)
        if (strcmp(variables[i][0], name) == 0)
            return variables[i][1];
    return NULL;
}

static bool yes(void *arg, const char *name)
{
    (void)arg;
    (void)name;
    return true;
}

static bool no(void *arg, const char *name)
{
    (void)arg;
    (void)name;
    return false;
}

static const struct what_files all_there = { yes, yes, yes, yes, NULL };
static const struct what_files none_there = { no, no, no, no, NULL };

static struct surroundings around = {
    .get_env = get_env, .files = &all_there, .own_path = "/opt/bin/fsdprun", .err_is_terminal = true
};

static char *argv[64];

static void parse(struct options *options, const char *words)
{
    static char copy[1024];
    struct options_input input = { .argc = 1, .argv = argv, .get_env = get_env, .n_cpus = 6 };
    struct fsdp_err err = { 0 };

    strcpy(copy, words);
    argv[0] = "fsdprun";
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        cr_assert(lt(int, input.argc, (int)(sizeof argv / sizeof *argv) - 1));
        argv[input.argc++] = word;
    }
    cr_assert(eq(int, options_read(options, &input, &err), FSDP_OK), "%s", err.message);
}

/* The directory that launch_program() made goes again, with its folder when it is a temporary one. */
static void remove_dir(const struct launch *launch)
{
    char parent[RUNDIR_PATH_BYTES + 8];

    if (launch->config.run_dir == NULL)
        return;
    rmdir(launch->config.run_dir);
    snprintf(parent, sizeof parent, "%s/..", launch->config.run_dir);
    if (launch->config.run_dir_temporary) {
        *strrchr(strcpy(parent, launch->config.run_dir), '/') = '\0';
        rmdir(parent);
    }
}

static void program_refused(const char *words, int want, const char *line)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;

    parse(&options, words);
    cr_expect(eq(int, launch_program(&launch, &options, WHAT_FILE, &around, &err), want), "%s", words);
    cr_expect(eq(str, err.message, (char *)line), "%s", words);
    remove_dir(&launch);
    launch_fini(&launch);
    options_fini(&options);
}

static void argv_is(const char *words, enum what_kind kind, const char *want)
{
    struct options options;
    char text[512] = "";
    char **out;

    parse(&options, words);
    out = launch_program_argv(&options, kind, &around, NULL);
    cr_assert_not_null(out);
    for (size_t i = 0; out[i] != NULL; i++)
        strcat(strcat(text, i == 0 ? "" : " "), out[i]);
    cr_expect(eq(str, text, (char *)want));
    free(out);
    options_fini(&options);
}

Test(launch, arguments_of_a_program)
{
    argv_is("x.py a b", WHAT_SCRIPT, "python3 -u x.py a b");
    argv_is("-m mod a", WHAT_MODULE, "python3 -u -m mod a");
    argv_is("thing a", WHAT_PYTHON, "python3 -u thing a");
    argv_is("prog a", WHAT_FILE, "./prog a");
    argv_is("d/prog a", WHAT_FILE, "d/prog a");
    argv_is("prog a", WHAT_ON_PATH, "prog a");
    argv_is("--no-python prog a", WHAT_DIRECT, "prog a");
    around.python_beside = "/venv/bin/python3";
    argv_is("x.py", WHAT_SCRIPT, "/venv/bin/python3 -u x.py");
    variables[0][0] = "PYTHON_EXEC";
    variables[0][1] = "/opt/python";
    argv_is("x.py", WHAT_SCRIPT, "/opt/python -u x.py");
}

Test(launch, a_program_without_python_is_127)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;

    around.files = &none_there;
    parse(&options, "x.py");
    cr_assert(eq(int, launch_program(&launch, &options, WHAT_SCRIPT, &around, &err), 127));
    cr_assert(eq(str, err.message,
                 "neither python3 nor python is on PATH to run x.py (PYTHON_EXEC names another)"));
    launch_fini(&launch);
    options_fini(&options);
}

Test(launch, a_program_gets_torchruns_defaults)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;

    parse(&options, "prog");
    cr_assert(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, &err), 0), "%s", err.message);

    cr_assert(eq(int, launch.config.n_workers, 1));
    cr_assert(eq(int, launch.config.max_restarts, 0));
    cr_assert(eq(i64, launch.config.grace_ms, 30000));
    cr_assert(eq(sz, strlen(launch.config.run_id), 36), "a UUID, not %s", launch.config.run_id);
    cr_assert_null(launch.config.job_json);
    cr_assert(launch.config.output.redirects == NULL && !launch.config.output.prefix);
    cr_assert(launch.config.run_dir_temporary);
    remove_dir(&launch);
    launch_fini(&launch);
    options_fini(&options);
}

Test(launch, options_reach_the_agent)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;

    parse(&options, "--nproc-per-node 3 --max-restarts 2 --shutdown-timeout 5 -r 0:3 -t 2:1 --rdzv-id a/b "
                    "--quiet --color "
                    "--log-dir /dev/null --master-port 29511 prog x");
    cr_assert(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, &err), 0), "%s", err.message);

    cr_assert(eq(int, launch.config.n_workers, 3));
    cr_assert(eq(int, launch.config.max_restarts, 2));
    cr_assert(eq(i64, launch.config.grace_ms, 5000));
    cr_assert(launch.config.output.redirects[0] == 3 && launch.config.output.redirects[2] == 0);
    cr_assert(launch.config.output.tees[2] == 1);
    cr_assert(eq(str, (char *)launch.config.run_id, "a/b"));
    cr_assert(launch.config.quiet && launch.config.output.color && launch.config.output.no_files);
    cr_assert(eq(int, launch.config.master_port, 29511));
    cr_assert_null(launch.config.run_dir);
    launch_fini(&launch);
    options_fini(&options);
}

Test(launch, several_nodes_meet_at_the_endpoint_with_a_secret)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;

    setenv("FSDPRUN_SECRET", secret, 1);
    parse(&options, "--nnodes 2 --node-rank 1 --rdzv-endpoint [fe80::1]:4711 --log-dir /dev/null prog");
    cr_assert(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, &err), 0), "%s", err.message);

    cr_assert(eq(str, (char *)launch.config.rendezvous_host, "fe80::1"));
    cr_assert(eq(int, launch.config.rendezvous_port, 4711));
    cr_assert(eq(int, launch.config.n_nodes, 2));
    cr_assert(eq(int, launch.config.node_rank, 1));
    cr_assert(eq(sz, launch.config.secret_bytes, strlen(secret)));
    launch_fini(&launch);
    options_fini(&options);
}

Test(launch, what_cannot_be_launched_is_one_line_and_bad_usage)
{
    unsetenv("FSDPRUN_SECRET");
    unsetenv("FSDPRUN_SECRET_FILE");
    program_refused("--node-rank 1 prog", 2, "--node-rank: there is no node 1 of 1 (the first is 0)");
    program_refused("--nnodes 2 prog", 2, "more than one node needs --rdzv-endpoint HOST:PORT");
    program_refused("--nnodes 2 --rdzv-endpoint ::1 prog", 2,
                    "--rdzv-endpoint: an IPv6 address stands in brackets, as [::1]:29400");
    program_refused("--nnodes 2 --rdzv-endpoint h:0 prog", 2,
                    "the nodes need one port to meet at: --rdzv-endpoint HOST:PORT");
    program_refused("--nnodes 2 --rdzv-endpoint h prog", 2,
                    "more than one node needs --secret-file FILE (or, on a network you trust, --insecure or "
                    "FSDPRUN_INSECURE=1)");
    program_refused("-r 1:3 prog", 2, "--redirects: names local rank 1 of 1 (the first is 0)");
    program_refused("--log-dir /etc/passwd prog", 2, "--log-dir: /etc/passwd is no directory");
    program_refused("--log-dir a --run-dir b prog", 2,
                    "--run-dir names the run directory itself: there is no place in it for --log-dir");
    program_refused("--save-on-signal prog", 2,
                    "--save-on-signal is for job files: a program gets the signal itself");
}

/* What launch_program() makes of `words`; fields of the agent's config as one line of text. */
static void world_is(const char *words, const char *want)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;
    char got[400], all[600];

    snprintf(all, sizeof all, "--insecure --log-dir /dev/null %s prog", words);
    parse(&options, all);
    cr_expect(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, &err), 0), "%s: %s", words,
              err.message);
    snprintf(got, sizeof got, "%d-%d rank %d at %s:%d master %s:%d join %d last %d host %d",
             launch.config.min_nodes, launch.config.n_nodes, launch.config.node_rank,
             launch.config.rendezvous_host == NULL ? "-" : launch.config.rendezvous_host,
             launch.config.rendezvous_port,
             launch.config.master_address == NULL ? "-" : launch.config.master_address,
             launch.config.master_port, (int)launch.config.join_timeout_ms / 1000,
             (int)launch.config.last_call_timeout_ms / 1000, (int)launch.config.hosting);
    cr_expect(eq(str, got, (char *)want), "%s", words);
    launch_fini(&launch);
    options_fini(&options);
}

Test(launch, where_nodes_meet_and_what_their_workers_are_told)
{
    world_is("", "1-1 rank 0 at -:0 master -:0 join 600 last 30 host 0");
    world_is("--standalone", "1-1 rank 0 at -:0 master -:0 join 600 last 30 host 0");
    world_is("--standalone --nnodes 1:4 --rdzv-endpoint localhost:0 --rdzv-backend c10d",
             "1-1 rank 0 at -:0 master -:0 join 600 last 30 host 0");
    world_is("--rdzv-endpoint localhost:29400",
             "1-1 rank 0 at -:0 master localhost:29400 join 600 last 30 host 0");
    world_is("--rdzv-backend c10d --rdzv-endpoint localhost:0",
             "1-1 rank 0 at -:0 master localhost:0 join 600 last 30 host 0");
    world_is("--rdzv-backend c10d --rdzv-endpoint localhost:29400",
             "1-1 rank 0 at -:0 master localhost:0 join 600 last 30 host 0");
    world_is("--rdzv-backend c10d --rdzv-endpoint localhost:29400 --master-port 7",
             "1-1 rank 0 at -:0 master localhost:7 join 600 last 30 host 0");
    world_is("--master-addr ::1 --master-port 5", "1-1 rank 0 at -:0 master ::1:5 join 600 last 30 host 0");
    world_is("--master-addr [0:0::1]", "1-1 rank 0 at -:0 master 0:0::1:0 join 600 last 30 host 0");
    world_is("--nnodes 2 --rdzv-endpoint h:1", "2-2 rank 0 at h:1 master -:0 join 600 last 30 host 0");
    world_is("--nnodes 2 --rdzv-endpoint h", "2-2 rank 0 at h:29400 master -:0 join 600 last 30 host 0");
    world_is("--nnodes 2 --node-rank 1 --master-addr h --master-port 29500",
             "2-2 rank 1 at h:29500 master -:0 join 600 last 30 host 0");
    world_is("--nnodes 2 --rdzv-endpoint h:1 --master-addr h --master-port 1",
             "2-2 rank 0 at h:1 master h:0 join 600 last 30 host 0");
    world_is("--nnodes 2 --rdzv-endpoint h:1 --master-addr i --master-port 1",
             "2-2 rank 0 at h:1 master i:1 join 600 last 30 host 0");
    world_is("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:1",
             "2-2 rank -1 at h:1 master -:0 join 600 last 30 host 0");
    world_is("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:1 --node-rank 1",
             "2-2 rank 1 at h:1 master -:0 join 600 last 30 host 0");
    world_is("--nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint [::1]:1",
             "1-4 rank -1 at ::1:1 master -:0 join 600 last 30 host 0");
    world_is("--nnodes 2 --rdzv-endpoint h --rdzv-conf timeout=7,is_host=0",
             "2-2 rank 0 at h:29400 master -:0 join 7 last 30 host 2");
    world_is(
        "--nnodes 2 --rdzv-endpoint h --rdzv-conf timeout=7,join_timeout=8,last_call_timeout=9,is_host=1",
        "2-2 rank 0 at h:29400 master -:0 join 8 last 9 host 1");
}

static bool no_store(const char *words)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;
    char all[200];
    bool got;

    snprintf(all, sizeof all, "--insecure --log-dir /dev/null %s prog", words);
    parse(&options, all);
    cr_assert(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, &err), 0), "%s", err.message);
    got = launch.config.no_store;
    launch_fini(&launch);
    options_fini(&options);
    return got;
}

Test(launch, torchs_word_against_the_store_counts_where_nothing_static_is_asked_for)
{
    variables[0][0] = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
    variables[0][1] = "1";
    cr_expect(no_store(""));
    cr_expect(no_store("--standalone"));
    cr_expect(no_store("--rdzv-backend c10d --rdzv-endpoint localhost:0"));
    cr_expect(no_store("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:1"));
    cr_expect(not(no_store("--master-port 29500")));
    cr_expect(not(no_store("--rdzv-endpoint localhost:29500")));
    cr_expect(not(no_store("--nnodes 2 --rdzv-endpoint h:1")));
    cr_expect(not(no_store("--nnodes 2 --master-addr h --master-port 1")));
    cr_expect(not(no_store("--nnodes 2 --master-addr h")));
    variables[0][1] = "0";
    cr_expect(not(no_store("--standalone")));
    variables[0][1] = "";
    cr_expect(not(no_store("--standalone")));
}

Test(launch, what_contradicts_standalone_is_refused_or_set_aside)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;

    program_refused("--standalone --nnodes 2 prog", 2,
                    "--nnodes 2 contradicts --standalone, which is this node alone");
    program_refused("--standalone --node-rank 1 prog", 2,
                    "--node-rank 1 contradicts --standalone, which is this node alone");
    program_refused("--standalone --rdzv-endpoint node0:29400 prog", 2,
                    "--rdzv-endpoint node0:29400 contradicts --standalone, which is this node alone");
    variables[0][0] = "PET_NNODES";
    variables[0][1] = "2:4";
    variables[1][0] = "PET_RDZV_ENDPOINT";
    variables[1][1] = "node0:29400";
    parse(&options, "--standalone --log-dir /dev/null prog");
    cr_assert(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, &err), 0), "%s", err.message);

    cr_expect(eq(int, launch.config.n_nodes, 1));
    cr_expect_null(launch.config.master_address);
    cr_assert(eq(sz, launch.n_notes, 2));
    cr_expect(eq(str, launch.notes[0], "--standalone is this node alone: PET_NNODES=2:4 is set aside"));
    cr_expect(eq(str, launch.notes[1],
                 "--standalone is this node alone: PET_RDZV_ENDPOINT=node0:29400 is set aside"));
    launch_fini(&launch);
    options_fini(&options);
}

Test(launch, one_of_several_tasks_needs_to_be_told_where_the_others_are)
{
    variables[0][0] = "SLURM_STEP_ID";
    variables[0][1] = "0";
    variables[1][0] = "SLURM_STEP_NUM_TASKS";
    variables[1][1] = "2";
    program_refused(
        "prog", 2,
        "srun started this 2 times, and each would be a world of its own: add --nnodes 2 --rdzv-backend "
        "c10d --rdzv-endpoint HOST:29400 --secret-file FILE (or --standalone, for worlds of their own)");
    program_refused(
        "--rdzv-endpoint h:1 prog", 2,
        "srun started this 2 times, and each would be a world of its own: add --nnodes 2 --rdzv-backend "
        "c10d --rdzv-endpoint HOST:29400 --secret-file FILE (or --standalone, for worlds of their own)");
    world_is("--standalone", "1-1 rank 0 at -:0 master -:0 join 600 last 30 host 0");
    world_is("--nnodes 2 --rdzv-endpoint h:1", "2-2 rank 0 at h:1 master -:0 join 600 last 30 host 0");
}

Test(launch, signals_filters_and_limits_reach_the_agent)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;

    parse(&options,
          "--nproc-per-node 12 --signals-to-handle TERM,SIGUSR1 --forward-signals USR2 --role r "
          "--numa-binding core-complex --virtual-local-rank --local-ranks-filter 0,11 "
          "--duplicate-stdout-filters a,b --duplicate-stderr-filters c,,d --log-limit 1M --log-keep 3 "
          "--log-line-prefix-template ${rank}: --local-addr 10.0.0.1 --log-dir /dev/null prog");
    cr_assert(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, &err), 0), "%s", err.message);

    cr_expect(eq(u64, launch.config.stop_signals, UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGUSR1));
    cr_expect(eq(u64, launch.config.forward_signals, UINT64_C(1) << SIGUSR2));
    cr_expect(eq(str, (char *)launch.config.stop_signals_text, "TERM,SIGUSR1"));
    cr_expect(eq(str, (char *)launch.config.role, "r"));
    cr_expect(eq(int, launch.config.numa, AGENT_NUMA_CORE_COMPLEX));
    cr_expect(launch.config.virtual_local_rank);
    cr_expect(launch.config.output.shown[0] && !launch.config.output.shown[1] &&
              launch.config.output.shown[11]);
    cr_expect(eq(str, launch.config.output.stdout_filters[1], "b"));
    cr_expect_null(launch.config.output.stdout_filters[2]);
    cr_expect(eq(str, launch.config.output.stderr_filters[0], "c,d"));
    cr_expect(eq(u64, launch.config.output.file_limit_bytes, 1048576));
    cr_expect(eq(int, launch.config.output.n_rotated, 3));
    cr_expect(eq(str, (char *)launch.config.output.prefix_template, "${rank}:"));
    cr_expect(eq(str, (char *)launch.config.local_address, "10.0.0.1"));
    launch_fini(&launch);
    options_fini(&options);
}

Test(launch, a_signal_has_one_meaning)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;

    program_refused(
        "--signals-to-handle TERM,USR1 --forward-signals USR1 prog", 2,
        "a signal is either handled (--signals-to-handle) or forwarded (--forward-signals), not both");
    program_refused("--local-ranks-filter 1 prog", 2,
                    "--local-ranks-filter: names local rank 1 of 1 (the first is 0)");
    program_refused("--master-addr h:1 prog", 2,
                    "--master-addr: must be an address without a port (that is --master-port), not h:1");
    program_refused("--master-addr [] prog", 2, "--master-addr: [] is no address");
    program_refused("--master-addr [h prog", 2,
                    "--master-addr: must be an address without a port (that is --master-port), not [h");
    parse(&options, "--forward-signals HUP,USR1 --log-dir /dev/null prog");
    cr_assert(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, &err), 0));
    cr_expect(eq(u64, launch.config.stop_signals & launch.config.forward_signals, 0),
              "HUP no longer ends the run");
    launch_fini(&launch);
    options_fini(&options);
}

static int two_devices(void *arg, const char *word, bool one_each, char *why, size_t why_bytes)
{
    (void)arg;
    (void)one_each;
    snprintf(why, why_bytes, "it has no %s", word);
    return strcmp(word, "xpu") == 0 ? 0 : 2;
}

Test(launch, more_workers_than_devices_is_said)
{
    static const char *const words[] = { "--nproc-per-node 3", "--nproc-per-node 2", "--nproc-per-node 1" };

    around.count_devices = two_devices;
    for (size_t i = 0; i < 3; i++) {
        char all[128];
        struct options options;
        struct launch launch;

        snprintf(all, sizeof all, "%s --log-dir /dev/null prog", words[i]);
        parse(&options, all);
        cr_assert(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, NULL), 0));
        cr_expect(eq(sz, launch.n_notes, i == 0), "%s", words[i]);
        if (i == 0)
            cr_expect(eq(str, launch.notes[0], "3 workers and 2 GPUs: some will have to share"));
        launch_fini(&launch);
        options_fini(&options);
    }
}

Test(launch, devices_are_counted_when_they_are_asked_for)
{
    static const struct {
        const char *word;
        int want; /* 0: refused */
        bool blind;
    } cases[] = { { "gpu", 2, false }, { "auto", 2, false }, { "xpu", 0, false }, { "cpu", 6, false },
                  { "gpu", 0, true },  { "auto", 6, true },  { "xpu", 0, true } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *words[] = { "fsdprun", "--nproc-per-node", (char *)(uintptr_t)cases[i].word, "x", NULL };
        struct options_input input = { .argc = 4, .argv = words, .get_env = get_env, .n_cpus = 6 };
        struct fsdp_err err = { 0 };
        struct options options;

        input.count_devices = cases[i].blind ? NULL : two_devices;
        cr_expect(eq(int, options_read(&options, &input, &err) == FSDP_OK, cases[i].want > 0), "%s",
                  cases[i].word);
        if (cases[i].want > 0)
            cr_expect(eq(i64, options_number(&options, OPT_NPROC_PER_NODE, 1), cases[i].want), "%s",
                      cases[i].word);
        else if (!cases[i].blind)
            cr_expect(eq(str, err.message, "--nproc-per-node: no xpu: it has no xpu"));
        options_fini(&options);
    }
}

Test(launch, run_path_runs_the_file_by_runpy)
{
    argv_is("--run-path x.py a", WHAT_RUN_PATH,
            "python3 -u -c import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], "
            "run_name='__main__') x.py a");
}

Test(launch, without_a_secret_only_when_insecure_was_said)
{
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;

    unsetenv("FSDPRUN_SECRET");
    unsetenv("FSDPRUN_SECRET_FILE");
    parse(&options, "--nnodes 2 --master-addr h --insecure --log-dir /dev/null prog");
    cr_assert(eq(int, launch_program(&launch, &options, WHAT_ON_PATH, &around, &err), 0), "%s", err.message);

    cr_assert_null(launch.config.secret);
    cr_assert(eq(str, (char *)launch.config.rendezvous_host, "h"));
    cr_assert(eq(int, launch.config.rendezvous_port, 29500));
    launch_fini(&launch);
    options_fini(&options);
}

static void write_job(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

Test(launch, a_job_is_the_file_below_environment_below_settings_below_options)
{
    char path[] = "/tmp/fsdp-launch-XXXXXX.yaml", words[256], *problems = NULL;
    struct job_input_result input;
    struct fsdp_err err = { 0 };
    struct options options;
    struct launch launch;
    size_t size;
    FILE *out = open_memstream(&problems, &size);

    close(mkstemps(path, 5));
    write_job(path, "run: {name: quick}\ndata: {path: /d}\nlaunch: {nproc_per_node: 2, nnodes: 2, "
                    "max_restarts: 7, threads: 2, hang_timeout_s: 1.5}\n");
    variables[0][0] = "PET_NNODES";
    variables[0][1] = "3";
    variables[1][0] = "PET_MAX_RESTARTS";
    variables[1][1] = "4";
    snprintf(words, sizeof words, "%s --nproc-per-node cpu --set launch.max_restarts=5 --set launch.nnodes=1",
             path);
    parse(&options, words);
    cr_assert(eq(int, job_input_resolve(&input, &options, out, &err), FSDP_OK), "%s", err.message);
    cr_assert(eq(int, launch_job(&launch, &options, &input.job, &around, &err), 0), "%s", err.message);

    cr_assert(eq(int, launch.config.n_workers, 6));
    cr_assert(eq(int, launch.config.n_nodes, 1));
    cr_assert(eq(int, launch.config.max_restarts, 5));
    cr_assert(eq(int, launch.config.threads, 2));
    cr_assert(eq(i64, launch.config.hang_timeout_ms, 1500));
    cr_assert(eq(str, launch.config.argv[0], "/opt/bin/fsdp-train"));
    cr_assert_null(launch.config.argv[1]);
    cr_assert(eq(str, (char *)launch.config.run_id, "quick"));
    cr_assert_not_null(strstr(launch.config.job_json, "\"nproc_per_node\": 6"));
    cr_assert_not_null(strstr(launch.config.run_dir, "/runs/quick"));
    cr_assert(launch.config.output.bar);
    launch_fini(&launch);
    job_input_fini(&input);
    options_fini(&options);
    fclose(out);
    free(problems);
    unlink(path);
}

/* Slurm kills soon after it has asked: a job saves before that, unless the user says how long it may take. */
Test(launch, a_save_of_a_job_under_slurm_ends_before_kill_wait)
{
    char path[] = "/tmp/fsdp-launch-XXXXXX.yaml", conf[] = "/tmp/fsdp-slurm-XXXXXX.conf", words[256];
    static const struct {
        const char *job_id, *conf, *option;
        int64_t want_ms;
    } cases[] = {
        { NULL, "KillWait=60\n", "", 30000 },
        { "7", "ClusterName=c\nKillWait=60\n", "", 55000 },
        { "7", "ClusterName=c\n", "", 25000 },
        { "7", NULL, "", 25000 },
        { "7", "KillWait=60\n", "--shutdown-timeout 99", 99000 },
    };

    close(mkstemps(path, 5));
    close(mkstemps(conf, 5));
    write_job(path, "run: {name: quick}\ndata: {path: /d}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job_input_result input;
        struct fsdp_err err = { 0 };
        struct options options;
        struct launch launch;

        variables[0][0] = "SLURM_CONF";
        variables[0][1] = cases[i].conf == NULL ? "/no/such/file" : conf;
        variables[1][0] = cases[i].job_id == NULL ? NULL : "SLURM_JOB_ID";
        variables[1][1] = cases[i].job_id;
        write_job(conf, cases[i].conf == NULL ? "" : cases[i].conf);
        snprintf(words, sizeof words, "%s %s", cases[i].option, path);
        parse(&options, words);
        cr_assert(eq(int, job_input_resolve(&input, &options, stderr, &err), FSDP_OK), "%s", err.message);
        cr_assert(eq(int, launch_job(&launch, &options, &input.job, &around, &err), 0), "%s", err.message);

        cr_expect(eq(i64, launch.config.grace_ms, cases[i].want_ms), "case %zu", i);
        launch_fini(&launch);
        job_input_fini(&input);
        options_fini(&options);
    }
    unlink(path);
    unlink(conf);
}

Test(launch, problems_of_a_job_are_written_one_a_line)
{
    char path[] = "/tmp/fsdp-launch-XXXXXX.yaml", words[256], want[512], *problems = NULL;
    struct job_input_result input;
    struct options options;
    size_t size;
    FILE *out = open_memstream(&problems, &size);

    close(mkstemps(path, 5));
    write_job(path, "data: {path: /d}\nmodel: {dim: x}\n");
    snprintf(words, sizeof words, "%s --set model.heads=0", path);
    parse(&options, words);
    cr_assert(eq(int, job_input_resolve(&input, &options, out, NULL), FSDP_ERR_CONFIG));
    fclose(out);

    snprintf(want, sizeof want,
             "%s:2:14: model.dim: must be a whole number from 1 to 1048576, not x\n"
             "--set 1: model.heads: must be a whole number from 1 to 65536, not 0\n",
             path);
    cr_assert(eq(str, problems, want));
    free(problems);
    options_fini(&options);
    unlink(path);
}
