#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/job_input.h"
#include "launcher/launch.h"

static const char *variables[8][2];

static const char *get_env(void *arg, const char *name)
{
    for (size_t i = 0; i < 8 && variables[i][0] != NULL; i++)
        if (strcmp(variables[i][0], name) == 0)
            return variables[i][1];
    return NULL;
}

static bool yes(void *arg, const char *name)
{
    return true;
}

static bool no(void *arg, const char *name)
{
    return false;
}

static const struct what_files all_there = { yes, yes, yes, yes, NULL };
static const struct what_files none_there = { no, no, no, no, NULL };

static struct surroundings around = {
    .get_env = get_env, .files = &all_there, .own_path = "/opt/bin/fsdprun", .err_is_terminal = true
};

/* A command line, and what was made of it. */
static struct made {
    struct options options;
    struct launch launch;
    struct job_input_result input; /* of a job */
    struct fsdp_err err;
    int status;
} made;
static const struct agent_config *const config = &made.launch.config;

static void parse(struct options *options, const char *words)
{
    static char *argv[64], copy[1024];
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
static void unmake(void)
{
    const char *dir = config->run_dir;
    char parent[RUNDIR_PATH_BYTES];

    if (dir != NULL && config->job_json == NULL) {
        rmdir(dir);
        if (config->run_dir_temporary) {
            *strrchr(strcpy(parent, dir), '/') = '\0';
            rmdir(parent);
        }
    }
    launch_fini(&made.launch);
    job_input_fini(&made.input);
    options_fini(&made.options);
    memset(&made, 0, sizeof made);
}

TestSuite(launch, .fini = unmake);

static void make(enum what_kind kind, const char *words)
{
    unmake();
    parse(&made.options, words);
    made.status = launch_program(&made.launch, &made.options, kind, &around, &made.err);
}

static void succeeded(void)
{
    cr_assert(eq(int, made.status, 0), "%s", made.err.message);
}

/* A program that can be launched, and keeps nothing. */
static void make_good(const char *words)
{
    char all[600];

    snprintf(all, sizeof all, "--insecure --log-dir /dev/null %s prog", words);
    make(WHAT_ON_PATH, all);
    cr_expect(eq(int, made.status, 0), "%s: %s", words, made.err.message);
}

static void is_refused(enum what_kind kind, const char *words, int status, const char *line)
{
    make(kind, words);
    cr_expect(eq(int, made.status, status), "%s", words);
    cr_expect(eq(str, made.err.message, (char *)line), "%s", words);
}

static void set_variable(int i, const char *name, const char *value)
{
    variables[i][0] = name;
    variables[i][1] = value;
}

static void argv_is(const char *words, enum what_kind kind, const char *want)
{
    char text[512] = "";

    make(kind, words);
    for (size_t i = 0; made.launch.argv[i] != NULL; i++)
        strcat(strcat(text, i == 0 ? "" : " "), made.launch.argv[i]);
    cr_expect(eq(str, text, (char *)want));
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
    argv_is("--run-path x.py a", WHAT_RUN_PATH,
            "python3 -u -c import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], "
            "run_name='__main__') x.py a");
    around.python_beside = "/venv/bin/python3";
    argv_is("x.py", WHAT_SCRIPT, "/venv/bin/python3 -u x.py");
    set_variable(0, "PYTHON_EXEC", "/opt/python");
    argv_is("x.py", WHAT_SCRIPT, "/opt/python -u x.py");
}

Test(launch, a_program_without_python_is_127)
{
    around.files = &none_there;
    is_refused(WHAT_SCRIPT, "x.py", 127,
               "neither python3 nor python is on PATH to run x.py (PYTHON_EXEC names another)");
}

Test(launch, a_program_gets_torchruns_defaults)
{
    make(WHAT_ON_PATH, "prog");

    succeeded();
    cr_assert(config->n_workers == 1 && config->max_restarts == 0 && config->grace_ms == 30000);
    cr_assert(eq(sz, strlen(config->run_id), 36), "a UUID, not %s", config->run_id);
    cr_assert(config->job_json == NULL && config->output.redirects == NULL && !config->output.prefix);
    cr_assert(config->run_dir_temporary);
}

/* Where --dry-run shows the field of an option, conformance/test_cli.sh looks at it. */
Test(launch, options_reach_the_agent)
{
    make_good("--nproc-per-node 12 -r 0:3 --quiet --color --signals-to-handle TERM,SIGUSR1 "
              "--forward-signals USR2 --numa-binding core-complex --local-ranks-filter 0,11");

    cr_expect(config->quiet && config->output.color && config->output.no_files && config->run_dir == NULL);
    cr_expect(eq(str, (char *)config->stop_signals_text, "TERM,SIGUSR1"));
    cr_expect(eq(u64, config->stop_signals, UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGUSR1));
    cr_expect(eq(u64, config->forward_signals, UINT64_C(1) << SIGUSR2));
    cr_expect(eq(int, config->numa, AGENT_NUMA_CORE_COMPLEX));
    cr_expect(config->output.shown[0] && !config->output.shown[1] && config->output.shown[11]);
    cr_expect(config->output.redirects[0] == 3 && config->output.redirects[2] == 0);
    make_good("--forward-signals HUP,USR1");
    cr_expect(eq(u64, config->stop_signals & config->forward_signals, 0), "HUP no longer ends the run");
}

static const char srun_line[] =
    "srun started this 2 times, and each would be a world of its own: add --nnodes 2 --rdzv-backend "
    "c10d --rdzv-endpoint HOST:29400 --secret-file FILE (or --standalone, for worlds of their own)";

Test(launch, what_cannot_be_launched_is_one_line_and_bad_usage)
{
    static const struct {
        const char *words, *line;
    } cases[] = {
        { "--node-rank 1", "--node-rank: there is no node 1 of 1 (the first is 0)" },
        { "--nnodes 2", "more than one node needs --rdzv-endpoint HOST:PORT" },
        { "--nnodes 2 --rdzv-endpoint h", "more than one node needs --secret-file FILE (or, on a network you "
                                          "trust, --insecure or FSDPRUN_INSECURE=1)" },
        { "--nnodes 2 --rdzv-endpoint ::1",
          "--rdzv-endpoint: an IPv6 address stands in brackets, as [::1]:29400" },
        { "--nnodes 2 --rdzv-endpoint etcd://a:b:c",
          "--rdzv-endpoint: the port in \"a:b:c\" is no number from 1 to 65535" },
        { "--nnodes 2 --rdzv-endpoint etcd://a --arbiter none",
          "--arbiter none contradicts --rdzv-endpoint etcd://a: that etcd says which node leads" },
        { "--nnodes 2 --rdzv-endpoint etcd://a --insecure",
          "an etcd needs --rdzv-id: it names the run there" },
        { "--standalone --rdzv-endpoint etcd://a",
          "--rdzv-endpoint etcd://a contradicts --standalone, which is this node alone" },
        { "--nnodes 2 --rdzv-endpoint h:0", "the nodes need one port to meet at: --rdzv-endpoint HOST:PORT" },
        { "-r 1:3", "--redirects: names local rank 1 of 1 (the first is 0)" },
        { "--local-ranks-filter 1", "--local-ranks-filter: names local rank 1 of 1 (the first is 0)" },
        { "--log-dir /etc/passwd", "--log-dir: /etc/passwd is no directory" },
        { "--log-dir a --run-dir b",
          "--run-dir names the run directory itself: there is no place in it for --log-dir" },
        { "--log-dir /dev/null --agent a --detach",
          "--detach: what the program writes must go to files: give --log-dir or --run-dir" },
        { "--save-on-signal", "--save-on-signal is for job files: a program gets the signal itself" },
        { "--signals-to-handle TERM,USR1 --forward-signals USR1",
          "a signal is either handled (--signals-to-handle) or forwarded (--forward-signals), not both" },
        { "--master-addr h:1",
          "--master-addr: must be an address without a port (that is --master-port), not h:1" },
        { "--master-addr []", "--master-addr: [] is no address" },
        { "--master-addr [h",
          "--master-addr: must be an address without a port (that is --master-port), not [h" },
        { "--standalone --nnodes 2", "--nnodes 2 contradicts --standalone, which is this node alone" },
        { "--standalone --node-rank 1", "--node-rank 1 contradicts --standalone, which is this node alone" },
        { "--standalone --rdzv-endpoint node0:29400",
          "--rdzv-endpoint node0:29400 contradicts --standalone, which is this node alone" },
        /* From here on as one of several tasks of srun. */
        { "--nproc-per-node 1", srun_line },
        { "--rdzv-endpoint h:1", srun_line },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char all[300];

        if (cases[i].line == srun_line) {
            set_variable(0, "SLURM_STEP_ID", "0");
            set_variable(1, "SLURM_STEP_NUM_TASKS", "2");
        }
        snprintf(all, sizeof all, "%s prog", cases[i].words);
        is_refused(WHAT_FILE, all, 2, cases[i].line);
    }
}

/*
 * What launch_program() makes of `words`: fields of the agent's config as one line of text. `rest` NULL: the
 * usual timeouts, and any node may host.
 */
static void world_is(const char *words, const char *want, const char *rest)
{
    char got[400], all[400];

    make_good(words);
    snprintf(got, sizeof got, "%d-%d rank %d at %s:%d master %s:%d join %d last %d lease %d host %d",
             config->min_nodes, config->n_nodes, config->node_rank,
             config->rendezvous_host == NULL ? "-" : config->rendezvous_host, config->rendezvous_port,
             config->master_address == NULL ? "-" : config->master_address, config->master_port,
             (int)config->join_timeout_ms / 1000, (int)config->last_call_timeout_ms / 1000,
             (int)config->lease_ms / 1000, (int)config->hosting);
    snprintf(all, sizeof all, "%s %s", want, rest == NULL ? "join 600 last 30 lease 3 host 0" : rest);
    cr_expect(eq(str, got, all), "%s", words);
}

Test(launch, where_nodes_meet_and_what_their_workers_are_told)
{
    static const char alone[] = "1-1 rank 0 at -:0 master -:0", local[] = "--rdzv-endpoint localhost:29400";
    static const char *const cases[][3] = {
        { "", alone },
        { "--standalone", alone },
        { "--standalone --nnodes 1:4 --rdzv-endpoint localhost:0 --rdzv-backend c10d", alone },
        { local, "1-1 rank 0 at -:0 master localhost:29400" },
        { "--rdzv-backend c10d --rdzv-endpoint localhost:0", "1-1 rank 0 at -:0 master localhost:0" },
        { "--rdzv-backend c10d --rdzv-endpoint localhost:29400", "1-1 rank 0 at -:0 master localhost:0" },
        { "--rdzv-backend c10d --rdzv-endpoint localhost:29400 --master-port 7",
          "1-1 rank 0 at -:0 master localhost:7" },
        { "--master-addr ::1 --master-port 5", "1-1 rank 0 at -:0 master ::1:5" },
        { "--master-addr [0:0::1]", "1-1 rank 0 at -:0 master 0:0::1:0" },
        { "--nnodes 2 --rdzv-endpoint h:1", "2-2 rank 0 at h:1 master -:0" },
        { "--nnodes 2 --rdzv-endpoint h", "2-2 rank 0 at h:29400 master -:0" },
        { "--nnodes 2 --node-rank 1 --master-addr h --master-port 29500",
          "2-2 rank 1 at h:29500 master -:0" },
        { "--nnodes 2 --rdzv-endpoint h:1 --master-addr h --master-port 1", "2-2 rank 0 at h:1 master h:0" },
        { "--nnodes 2 --rdzv-endpoint h:1 --master-addr i --master-port 1", "2-2 rank 0 at h:1 master i:1" },
        { "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:1", "2-2 rank -1 at h:1 master -:0" },
        { "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:1 --node-rank 1",
          "2-2 rank 1 at h:1 master -:0" },
        { "--nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint [::1]:1", "1-4 rank -1 at ::1:1 master -:0" },
        { "--nnodes 2 --rdzv-endpoint etcd://a,b:1 --rdzv-id x", "2-2 rank -1 at -:0 master -:0" },
        { "--nnodes 2 --rdzv-endpoint etcd://a --rdzv-id x --node-rank 1 --master-addr h --master-port 7",
          "2-2 rank 1 at -:0 master -:0" },
        { "--rdzv-endpoint etcd://a", alone },
        { "--nnodes 2 --rdzv-endpoint h --rdzv-conf timeout=7,is_host=0", "2-2 rank 0 at h:29400 master -:0",
          "join 7 last 30 lease 3 host 2" },
        { "--nnodes 2 --rdzv-endpoint h --rdzv-conf "
          "timeout=7,join_timeout=8,last_call_timeout=9,lease=5,is_host=1",
          "2-2 rank 0 at h:29400 master -:0", "join 8 last 9 lease 5 host 1" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        world_is(cases[i][0], cases[i][1], cases[i][2]);
    /* One of several tasks that is told where the others are, or is alone. */
    set_variable(0, "SLURM_STEP_ID", "0");
    set_variable(1, "SLURM_STEP_NUM_TASKS", "2");
    world_is("--standalone", alone, NULL);
    world_is("--nnodes 2 --rdzv-endpoint h:1", "2-2 rank 0 at h:1 master -:0", NULL);
}

Test(launch, an_etcd_as_the_endpoint_says_who_leads)
{
    static const char endpoint[] = "etcds://a:1,b";

    make_good("--nnodes 2 --rdzv-id x --rdzv-endpoint etcds://a:1,b --arbiter etcds://a:1,b --master-addr h");
    cr_expect(config->arbiter == AGENT_ARBITER_ETCD && config->rendezvous_host == NULL);
    cr_expect(eq(str, (char *)config->etcd, (char *)endpoint));
    cr_assert(eq(sz, made.launch.n_notes, 1));
    cr_expect(eq(str, made.launch.notes[0], "any node may lead: --master-addr=h is set aside"));
    set_variable(0, "PET_RDZV_ENDPOINT", endpoint);
    make_good("--nnodes 2 --rdzv-id x");
    cr_expect(config->arbiter == AGENT_ARBITER_ETCD && config->rendezvous_host == NULL);
    make_good("--nnodes 2 --rdzv-endpoint h");
    cr_expect(config->arbiter == AGENT_ARBITER_DIRECTORY && config->etcd == NULL);
}

Test(launch, torchs_word_against_the_store_counts_where_nothing_static_is_asked_for)
{
    static const struct {
        const char *value, *words;
        bool no_store;
    } cases[] = {
        { "1", "", true },
        { "1", "--standalone", true },
        { "1", "--rdzv-backend c10d --rdzv-endpoint localhost:0", true },
        { "1", "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:1", true },
        { "1", "--master-port 29500", false },
        { "1", "--rdzv-endpoint localhost:29500", false },
        { "1", "--nnodes 2 --rdzv-endpoint h:1", false },
        { "1", "--nnodes 2 --master-addr h --master-port 1", false },
        { "1", "--nnodes 2 --master-addr h", false },
        { "0", "--standalone", false },
        { "", "--standalone", false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_variable(0, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", cases[i].value);
        make_good(cases[i].words);
        cr_expect(eq(int, config->no_store, cases[i].no_store), "%s, %s", cases[i].value, cases[i].words);
    }
}

Test(launch, what_the_environment_says_against_standalone_is_set_aside)
{
    set_variable(0, "PET_NNODES", "2:4");
    set_variable(1, "PET_RDZV_ENDPOINT", "node0:29400");
    make_good("--standalone");

    cr_expect(config->n_nodes == 1 && config->master_address == NULL);
    cr_assert(eq(sz, made.launch.n_notes, 2));
    cr_expect(eq(str, made.launch.notes[0], "--standalone is this node alone: PET_NNODES=2:4 is set aside"));
    cr_expect(eq(str, made.launch.notes[1],
                 "--standalone is this node alone: PET_RDZV_ENDPOINT=node0:29400 is set aside"));
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

/*
 * The job of a file with `text`, under these options. Problems of the file go to `problems`, and leave no
 * launch.
 */
static void make_job(const char *text, const char *words, FILE *problems)
{
    char path[] = "/tmp/fsdp-launch-XXXXXX.yaml", all[256];
    enum fsdp_status status;

    unmake();
    close(mkstemps(path, 5));
    write_file(path, text);
    snprintf(all, sizeof all, "%s %s", path, words);
    parse(&made.options, all);
    status = job_input_resolve(&made.input, &made.options, problems, &made.err);
    unlink(path);
    made.status =
        status == FSDP_OK ? launch_job(&made.launch, &made.options, &made.input.job, &around, &made.err) : -1;
}

Test(launch, a_job_is_the_file_below_environment_below_settings_below_options)
{
    set_variable(0, "PET_NNODES", "3");
    set_variable(1, "PET_MAX_RESTARTS", "4");
    make_job("run: {name: quick}\ndata: {path: /d}\nlaunch: {nproc_per_node: 2, nnodes: 2, max_restarts: 7, "
             "threads: 2, hang_timeout_s: 1.5}\n",
             "--nproc-per-node cpu --set launch.max_restarts=5 --set launch.nnodes=1", stderr);

    succeeded();
    cr_assert(config->n_workers == 6 && config->n_nodes == 1 && config->max_restarts == 5);
    cr_assert(config->threads == 2 && config->hang_timeout_ms == 1500 && config->output.bar);
    cr_assert(eq(str, config->argv[0], "/opt/bin/fsdp-train"));
    cr_assert_null(config->argv[1]);
    cr_assert(eq(str, (char *)config->run_id, "quick"));
    cr_assert_not_null(strstr(config->job_json, "\"nproc_per_node\": 6"));
    cr_assert_not_null(strstr(config->run_dir, "/runs/quick"));
}

/* The window is a key of its own in a job. An option without a window takes away the file's. */
Test(launch, a_window_of_restarts_comes_from_the_option_or_from_the_file)
{
    static const char file[] = "data: {path: /d}\nlaunch: {max_restarts: 7, restart_window_s: 30}\n";

    make_job(file, "", stderr);
    cr_expect(config->max_restarts == 7 && config->restart_window_ms == 30000);
    make_job(file, "--max-restarts 2/60", stderr);
    cr_expect(config->max_restarts == 2 && config->restart_window_ms == 60000);
    make_job(file, "--max-restarts 2", stderr);
    cr_expect(config->max_restarts == 2 && config->restart_window_ms == 0);
    make_job(file, "--set launch.max_restarts=241", stderr);
    cr_expect(eq(int, made.status, FSDP_EXIT_CONFIG));
    cr_expect(eq(str, made.err.message,
                 "launch.max_restarts: with launch.restart_window_s it must be at most 240, not 241"));
    make_good("--max-restarts 2/60");
    cr_expect(config->max_restarts == 2 && config->restart_window_ms == 60000);
}

/* Slurm kills soon after it has asked: a job saves before that, unless the user says how long it may take. */
Test(launch, a_save_of_a_job_under_slurm_ends_before_kill_wait)
{
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
    char conf[] = "/tmp/fsdp-slurm-XXXXXX.conf";

    close(mkstemps(conf, 5));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_variable(0, "SLURM_CONF", cases[i].conf == NULL ? "/no/such/file" : conf);
        set_variable(1, cases[i].job_id == NULL ? NULL : "SLURM_JOB_ID", cases[i].job_id);
        write_file(conf, cases[i].conf == NULL ? "" : cases[i].conf);
        make_job("run: {name: quick}\ndata: {path: /d}\n", cases[i].option, stderr);

        succeeded();
        cr_expect(eq(i64, config->grace_ms, cases[i].want_ms), "case %zu", i);
    }
    unlink(conf);
}

Test(launch, problems_of_a_job_are_written_one_a_line)
{
    char *problems = NULL;
    size_t size;
    FILE *out = open_memstream(&problems, &size);

    make_job("data: {path: /d}\nmodel: {dim: x}\n", "--set model.heads=0", out);
    fclose(out);

    cr_assert(eq(int, made.err.status, FSDP_ERR_CONFIG));
    cr_assert(strncmp(problems, "/tmp/fsdp-launch-", 17) == 0, "%s", problems);
    cr_assert(eq(str, strchr(problems, ':'),
                 ":2:14: model.dim: must be a whole number from 1 to 1048576, not x\n"
                 "--set 1: model.heads: must be a whole number from 1 to 65536, not 0\n"));
    free(problems);
}
