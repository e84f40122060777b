#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "launcher/slurm.h"

/* Looks a variable up in "A=1 B=2"; of two with one name the last counts. */
static const char *get_env(void *arg, const char *name)
{
    static char values[16][256];
    static int next;
    const char *found = NULL;

    for (const char *at = arg; *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
        const size_t n = strlen(name);

        if (strncmp(at, name, n) != 0 || at[n] != '=')
            continue;
        snprintf(values[next % 16], sizeof *values, "%.*s", (int)strcspn(at + n + 1, " "), at + n + 1);
        found = values[next++ % 16];
    }
    return found;
}

#define TASK                                                                                                 \
    "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=3 SLURM_STEP_NODELIST=n[08-09,12] SLURM_NODEID=2 " \
    "SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=3,1(x2) "

static struct slurm_step found;

static bool find(const char *variables)
{
    return slurm_step_find(&found, get_env, (void *)(uintptr_t)variables);
}

Test(slurm, a_task_knows_its_step)
{
    cr_assert(find(TASK));

    cr_expect(eq(int, found.n_nodes, 3));
    cr_expect(eq(int, found.node, 2));
    cr_expect(eq(int, found.n_tasks_here, 1));
    cr_expect(eq(int, found.task_here, 0));
    cr_expect(eq(int, found.n_gpus, 0));
    cr_expect(eq(str, found.head, "n08"));
    cr_expect(eq(str, found.here, "n12"));
    cr_expect(eq(str, found.id, "12.0"));
}

Test(slurm, a_task_of_several_on_a_node_knows_its_place)
{
    cr_assert(find(TASK "SLURM_NODEID=0 SLURM_LOCALID=2"));

    cr_expect(eq(int, found.n_tasks_here, 3));
    cr_expect(eq(int, found.task_here, 2));
}

Test(slurm, gpus_are_those_that_the_task_sees)
{
    static const struct {
        const char *variables;
        int n_gpus;
    } cases[] = {
        { TASK "SLURM_GPUS_ON_NODE=8", 8 },
        { TASK "SLURM_GPUS_ON_NODE=8 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7", 8 },
        { TASK "SLURM_GPUS_ON_NODE=8 CUDA_VISIBLE_DEVICES=5", 1 },
        { TASK "CUDA_VISIBLE_DEVICES=0,1", 0 }, /* of the user, who has not asked Slurm for any */
        { TASK "SLURM_GPUS_ON_NODE=0", 0 },
        { TASK "SLURM_GPUS_ON_NODE=eight", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(find(cases[i].variables));
        cr_expect(eq(int, found.n_gpus, cases[i].n_gpus), "%s", cases[i].variables);
    }
}

Test(slurm, what_is_no_task_of_srun_or_contradicts_itself_is_no_step)
{
    static const char *const cases[] = {
        "",
        "SLURM_JOB_ID=12 SLURM_NODEID=0 SLURM_LOCALID=0 SLURM_NNODES=2", /* a batch script */
        TASK "SLURM_STEP_ID=4294967290",                                 /* an interactive step */
        TASK "SLURM_JOB_ID=",
        TASK "SLURM_STEP_NUM_NODES=2", /* the list has three */
        TASK "SLURM_STEP_NUM_NODES=0",
        TASK "SLURM_STEP_NODELIST=n[08-09,12",
        TASK "SLURM_NODEID=3",
        TASK "SLURM_NODEID=-1",
        TASK "SLURM_LOCALID=1", /* node 2 has one task */
        TASK "SLURM_STEP_TASKS_PER_NODE=3,1",
        TASK "SLURM_STEP_TASKS_PER_NODE=",
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect(eq(int, find(cases[i]), false), "%s", cases[i]);
}

Test(slurm, steps_array_tasks_and_restarts_have_ports_and_ids_of_their_own)
{
    static const char *const others[] = { TASK "SLURM_STEP_ID=1", TASK "SLURM_JOB_ID=13",
                                          TASK "SLURM_RESTART_COUNT=1", TASK "SLURM_RESTART_COUNT=2" };
    struct slurm_step first;

    cr_assert(find(TASK));
    first = found;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        cr_assert(find(others[i]));
        cr_expect(ne(int, found.port, first.port), "%s", others[i]);
        cr_expect(ne(str, found.id, first.id), "%s", others[i]);
    }
    cr_expect(eq(str, found.id, "12.0.2"));
}

Test(slurm, ports_stay_in_their_range)
{
    cr_assert(find(TASK "SLURM_JOB_ID=4294967295 SLURM_STEP_ID=4294967279 SLURM_RESTART_COUNT=2147483647"));

    cr_expect(found.port >= SLURM_FIRST_PORT && found.port < SLURM_FIRST_PORT + SLURM_N_PORTS);
}

Test(slurm, tasks_per_node)
{
    static const struct {
        const char *text;
        int tasks[5]; /* of the nodes 0 to 4 */
    } cases[] = {
        { "8", { 8 } },
        { "3,1(x2)", { 3, 1, 1 } },
        { "2(x2),1,4(x1)", { 2, 2, 1, 4 } },
        { "", { 0 } },
        { "0", { 0 } },
        { "-1", { 0 } },
        { "2(x", { 0 } },
        { "2(x)", { 0 } },
        { "2(x0)", { 0 } },
        { "2(x2", { 0 } },
        { "2(y2)", { 0 } },
        { "2x", { 0 } },
        { "1,", { 1 } },
        { "99999999999", { 0 } },
        { "1(x99999999999)", { 0 } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int node = 0; node < 5; node++)
            cr_expect(eq(int, slurm_tasks_of(cases[i].text, node), cases[i].tasks[node]), "%s, node %d",
                      cases[i].text, node);
    cr_expect(eq(int, slurm_tasks_of("8", -1), 0));
}

Test(slurm, a_run_is_named_after_the_job_if_the_user_has_named_it)
{
    static const struct {
        const char *variables, *name; /* NULL: none */
    } cases[] = {
        { "", NULL },
        { "SLURM_JOB_NAME=fsdprun", NULL },
        { "SLURM_JOB_NAME=wrap", NULL },
        { "SLURM_JOB_NAME=interactive", NULL },
        { "SLURM_JOB_NAME=llama", "llama" },
        { "SLURM_JOB_NAME=train.sbatch", "train.sbatch" },
        { "SLURM_JOB_NAME=a/b:c", "a-b-c" },
        { "SLURM_JOB_NAME=../up", "_.-up" },
        { "SLURM_JOB_NAME=-q", "_q" },
        { "SLURM_JOB_NAME=llama SLURM_ARRAY_TASK_ID=7", "llama-7" },
        { "SLURM_JOB_NAME=wrap SLURM_ARRAY_TASK_ID=7", "train-7" },
    };
    char name[SLURM_NAME_BYTES], variables[400];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool is_named = slurm_run_name(get_env, (void *)(uintptr_t)cases[i].variables, "fsdprun",
                                             "jobs.d/train.yaml", name);

        cr_expect(eq(int, is_named, cases[i].name != NULL), "%s", cases[i].variables);
        if (is_named && cases[i].name != NULL)
            cr_expect(eq(str, name, (char *)(uintptr_t)cases[i].name));
    }
    snprintf(variables, sizeof variables, "SLURM_JOB_NAME=%0250d SLURM_ARRAY_TASK_ID=2147483647", 0);
    cr_expect(slurm_run_name(get_env, variables, "fsdprun", "train.yaml", name));
    cr_expect(strlen(name) < SLURM_NAME_BYTES && strstr(name, "-2147483647") != NULL);
}

Test(slurm, a_job_is_preempted_once_a_time_is_shown)
{
    static const char preempted[] =
        "JobId=4 JobName=pr\n   JobState=RUNNING Reason=None\n   "
        "PreemptEligibleTime=2026-11-28T04:59:10 PreemptTime=2026-11-28T04:59:11\n";

    cr_expect(eq(int, slurm_is_preempted(preempted), true));
    cr_expect(
        eq(int, slurm_is_preempted("   PreemptEligibleTime=2026-11-28T04:59:10 PreemptTime=None\n"), false));
    cr_expect(eq(int, slurm_is_preempted("PreemptEligibleTime=2026-11-28T04:59:10\n"), false));
    cr_expect(eq(int, slurm_is_preempted(" PreemptTime="), false));
    cr_expect(eq(int, slurm_is_preempted(""), false));
}
