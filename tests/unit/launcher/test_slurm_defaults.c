#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/job_input.h"
#include "launcher/slurm_defaults.h"

#define TASK                                                                                                 \
    "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=3 SLURM_STEP_NODELIST=n[08-09,12] SLURM_NODEID=1 " \
    "SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x3) "
#define ALONE                                                                                                \
    "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n08 SLURM_NODEID=0 "         \
    "SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=4 SLURM_STEP_NUM_TASKS=4 "

static const char *variables;

/* Looks a variable up in "A=1 B=2"; of two with one name the last counts. */
static const char *get_env(void *arg, const char *name)
{
    static char values[64][256];
    static int next;
    const char *found = NULL;
    const size_t n = strlen(name);

    for (const char *at = variables; *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
        if (strncmp(at, name, n) != 0 || at[n] != '=')
            continue;
        snprintf(values[next % 64], sizeof *values, "%.*s", (int)strcspn(at + n + 1, " "), at + n + 1);
        found = values[next++ % 64];
    }
    return found;
}

static bool yes(void *arg, const char *name)
{
    return true;
}

static const struct what_files files = { yes, yes, yes, yes, NULL };
static char folder[32], job_path[64];
static struct surroundings around;
static struct slurm_defaults defaults;
static struct options options;
static struct job_input_result input;
static struct launch launch;
static const struct agent_config *const config = &launch.config;
static struct fsdp_err err;
static int status;

static void unmake(void)
{
    launch_fini(&launch);
    job_input_fini(&input);
    options_fini(&options);
    options = (struct options){ 0 };
}

static void make_folder(void)
{
    setenv("PATH", "/nonexistent", 1); /* no munge */
    strcpy(folder, "/tmp/fsdp-slurm-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(job_path, sizeof job_path, "%s/train.yaml", folder);
}

static void remove_folder(void)
{
    unmake();
    unlink(job_path);
    cr_expect(eq(int, rmdir(folder), 0), "nothing else was left in it");
}

TestSuite(slurm_defaults, .init = make_folder, .fini = remove_folder);

/* Launches what `words` say, a program or (text not NULL) a job, with these variables. */
static void make(const char *environment, const char *text, const char *words)
{
    static char *argv[32], copy[512];
    struct options_input from = { .argc = 1, .argv = argv, .get_env = get_env, .n_cpus = 6 };
    FILE *file;

    unmake();
    err = (struct fsdp_err){ 0 };
    variables = environment;
    around = (struct surroundings){ .get_env = get_env, .files = &files, .own_path = "/opt/bin/fsdprun" };
    snprintf(copy, sizeof copy, "%s %s", words, text != NULL ? job_path : "prog");
    argv[0] = (char *)(uintptr_t) "fsdprun";
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[from.argc++] = word;
    cr_assert(eq(int, options_read(&options, &from, &err), FSDP_OK), "%s", err.message);
    cr_assert(eq(int, slurm_defaults_apply(&defaults, &options, text != NULL, &around, &err), FSDP_OK), "%s",
              err.message);
    if (text == NULL) {
        status = launch_program(&launch, &options, WHAT_FILE, &around, &err);
        return;
    }
    file = fopen(job_path, "w");
    cr_assert(file != NULL);
    fputs(text, file);
    fclose(file);
    cr_assert(eq(int, job_input_resolve(&input, &options, stderr, &err), FSDP_OK));
    status = launch_job(&launch, &options, &input.job, &around, &err);
}

static const char *world(void)
{
    static char out[400];
    static const char *const hosting[] = { "auto", "hosts", "joins" };

    snprintf(out, sizeof out, "%d-%d of %d, rank %d, at %s:%d, %s%s%s", config->min_nodes, config->n_nodes,
             config->n_workers, config->node_rank,
             config->rendezvous_host == NULL ? "-" : config->rendezvous_host, config->rendezvous_port,
             hosting[config->hosting], config->signals_for_all ? ", for all" : "",
             config->save_on_signal != 0 ? ", saves" : "");
    return out;
}

#define DATA "data: {path: /d}\n"

Test(slurm_defaults, what_follows_for_a_job)
{
    static const struct {
        const char *variables, *text, *words, *want;
    } cases[] = {
        { "", DATA, "", "1-1 of 1, rank 0, at -:0, auto" },
        { TASK, DATA, "--insecure", "3-3 of 1, rank -1, at n08:20192, joins, for all, saves" },
        { TASK "SLURM_NODEID=0", DATA, "--insecure",
          "3-3 of 1, rank -1, at n08:20192, hosts, for all, saves" },
        { TASK, DATA "train: {global_batch: 12}\n", "--insecure",
          "1-3 of 1, rank -1, at n08:20192, joins, for all, saves" },
        { TASK, DATA "train: {global_batch: 12}\n", "--insecure --nnodes 2:3",
          "2-3 of 1, rank -1, at n08:20192, joins, for all, saves" },
        { TASK "SLURM_GPUS_ON_NODE=2", DATA, "--insecure",
          "3-3 of 2, rank -1, at n08:20192, joins, for all, saves" },
        { TASK "SLURM_STEP_TASKS_PER_NODE=8(x3)", DATA, "--insecure",
          "3-3 of 8, rank -1, at n08:20192, joins, for all, saves" },
        /* the job file, the environment and the command line win */
        { TASK, DATA "launch: {nnodes: 2, nproc_per_node: 5}\n", "--insecure",
          "2-2 of 5, rank -1, at n08:20192, joins, for all, saves" },
        { TASK "PET_NNODES=1:2 FSDPRUN_NPROC_PER_NODE=3 FSDPRUN_SAVE_ON_SIGNAL=0", DATA, "--insecure",
          "1-2 of 3, rank -1, at n08:20192, joins, for all" },
        { TASK, DATA, "--insecure --rdzv-backend static",
          "3-3 of 1, rank 1, at n08:20192, joins, for all, saves" },
        { TASK, DATA, "--insecure --rdzv-conf is_host=1",
          "3-3 of 1, rank -1, at n08:20192, hosts, for all, saves" },
        { TASK, DATA, "--insecure --forward-signals USR1",
          "3-3 of 1, rank -1, at n08:20192, joins, for all" },
        /* the user arranges the nodes */
        { TASK, DATA, "--standalone", "1-1 of 1, rank 0, at -:0, auto, saves" },
        { TASK, DATA, "--insecure --nnodes 3 --rdzv-endpoint h:1", "3-3 of 1, rank 0, at h:1, auto, saves" },
        { TASK, DATA, "--insecure --nnodes 3 --node-rank 1 --master-addr h",
          "3-3 of 1, rank 1, at h:29500, auto, saves" },
        /* one node: its first task launches */
        { ALONE, DATA, "", "1-1 of 4, rank 0, at -:0, auto, saves" },
        { ALONE, DATA "launch: {nproc_per_node: 2}\n", "", "1-1 of 2, rank 0, at -:0, auto, saves" },
        /* a batch script on one node */
        { "SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=1 SLURM_NTASKS=8", DATA, "",
          "1-1 of 1, rank 0, at -:0, auto, saves" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make(cases[i].variables, cases[i].text, cases[i].words);
        cr_expect(eq(int, status, 0), "case %zu: %s", i, err.message);
        cr_expect(eq(str, (char *)(uintptr_t)world(), (char *)(uintptr_t)cases[i].want), "case %zu", i);
    }
}

Test(slurm_defaults, what_follows_for_a_program)
{
    make(TASK "SLURM_RESTART_COUNT=1 SLURM_GPUS_ON_NODE=4", NULL, "--insecure --log-dir /dev/null");
    cr_expect(eq(int, status, 0), "%s", err.message);
    cr_expect(eq(str, (char *)(uintptr_t)world(), "3-3 of 4, rank -1, at n08:28111, joins, for all"));
    cr_expect(eq(str, (char *)(uintptr_t)config->run_id, "12.0.1"));
    make(TASK, NULL, "--insecure --log-dir /dev/null --rdzv-id mine --nproc-per-node 2");
    cr_expect(eq(str, (char *)(uintptr_t)config->run_id, "mine"));
    cr_expect(eq(int, config->n_workers, 2));
}

Test(slurm_defaults, the_run_is_named_after_the_job_unless_the_file_names_it)
{
    make(TASK "SLURM_JOB_NAME=llama SLURM_ARRAY_TASK_ID=3", DATA, "--insecure");
    cr_expect(eq(str, input.job.run.name, "llama-3"));
    make(TASK "SLURM_JOB_NAME=llama SLURM_ARRAY_TASK_ID=3", DATA "run: {name: mine}\n", "--insecure");
    cr_expect(eq(str, input.job.run.name, "mine"));
    make(TASK "SLURM_JOB_NAME=llama", DATA "run: {name: mine}\n", "--insecure --set run.name=yours");
    cr_expect(eq(str, input.job.run.name, "yours"));
    make(TASK "SLURM_JOB_NAME=fsdprun", DATA, "--insecure");
    cr_expect(eq(str, input.job.run.name, "train"));
}

Test(slurm_defaults, the_first_node_makes_a_secret_and_takes_it_away)
{
    char words[100], secret_path[100];
    struct secret made;

    snprintf(words, sizeof words, "--log-dir %s", folder);
    snprintf(secret_path, sizeof secret_path, "%s/.secret-12.0-train", folder);
    make(TASK "SLURM_NODEID=0", DATA, words);
    cr_assert(eq(int, status, 0), "%s", err.message);
    cr_assert(eq(sz, config->secret_bytes, 64));
    made = launch.secret;
    cr_expect(eq(int, secret_load(&launch.secret, secret_path, NULL), FSDP_OK));
    cr_expect(eq(int, memcmp(made.bytes, launch.secret.bytes, 64), 0));

    launch_fini(&launch);

    cr_expect(eq(int, access(secret_path, F_OK), -1));
}

Test(slurm_defaults, another_node_finds_the_secret)
{
    char words[100], secret_path[100];
    struct secret made;

    snprintf(words, sizeof words, "--log-dir %s", folder);
    snprintf(secret_path, sizeof secret_path, "%s/.secret-12.0-train", folder);
    cr_assert(eq(int, secret_make(&made, secret_path, NULL), FSDP_OK));

    make(TASK, DATA, words);

    cr_assert(eq(int, status, 0), "%s", err.message);
    cr_expect(eq(sz, config->secret_bytes, 64));
    cr_expect(eq(int, memcmp(made.bytes, config->secret, 64), 0));
    launch_fini(&launch);
    cr_expect(eq(int, unlink(secret_path), 0), "it is the first node's to take away");
}

Test(slurm_defaults, a_wrong_use_is_refused_with_what_to_do)
{
    static const struct {
        const char *variables, *text, *words, *line;
    } cases[] = {
        { "SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=2", NULL, "",
          "this Slurm job has 2 nodes, and only this one would be used; start it by srun: srun "
          "--ntasks-per-node=1 fsdprun ... prog (or add --standalone, for this node alone)" },
        { TASK, NULL, "--insecure --nnodes 4", "--nnodes asks for 4 nodes, and this Slurm step has 3" },
        { TASK, DATA "launch: {nnodes: 4}\n", "--insecure",
          "launch.nnodes asks for 4 nodes, and this Slurm step has 3" },
        { TASK "SLURM_STEP_NUM_TASKS=3", NULL, "--nnodes 1",
          "srun started this 3 times, and each would be a world of its own: add --nnodes 3 --rdzv-backend "
          "c10d "
          "--rdzv-endpoint n08:29400 --secret-file FILE (or --standalone, for worlds of their own)" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make(cases[i].variables, cases[i].text, cases[i].words);
        cr_expect(eq(int, status, 2), "case %zu", i);
        cr_expect(eq(str, err.message, (char *)(uintptr_t)cases[i].line), "case %zu", i);
    }
    make("SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=2", NULL, "--standalone --log-dir /dev/null");
    cr_expect(eq(int, status, 0), "%s", err.message);
}
