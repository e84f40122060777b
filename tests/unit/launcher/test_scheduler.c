#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "launcher/scheduler.h"

/* "A=1 B=2", as an environment. */
static const char *get_env(void *arg, const char *name)
{
    static char values[16][256];
    static int next;
    char *value = values[next++ % 16];
    size_t n = strlen(name);

    for (const char *at = arg; *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
        if (strncmp(at, name, n) != 0 || at[n] != '=')
            continue;
        snprintf(value, sizeof *values, "%.*s", (int)strcspn(at + n + 1, " "), at + n + 1);
        return value;
    }
    return NULL;
}

/* clang-format off */
static const struct {
    const char *variables;
    int n_tasks, n_nodes; /* 1 task: not one of several */
    const char *starter, *head;
} cases[] = {
    { "", 1, 0, "", "" },
    /* sbatch -N2 -n8, the script itself; the same with the rank that it is given */
    { "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_NNODES=2 SLURM_JOB_NODELIST=n[1-2]", 1, 0, "", "" },
    { "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_NNODES=2 SLURM_PROCID=0 SLURM_LOCALID=0", 1, 0, "", "" },
    /* salloc with an interactive step: its number is one of Slurm's own */
    { "SLURM_STEP_ID=4294967290 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", 1, 0, "", "" },
    { "SLURM_STEP_ID=4294967290 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=8", 1, 0, "", "" },
    /* srun */
    { "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=8", 1, 0, "", "" },
    { "SLURM_STEP_ID=0 SLURM_NTASKS=1", 1, 0, "", "" },
    { "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[03-04] "
      "SLURM_NNODES=9 SLURM_JOB_NODELIST=x", 2, 2, "srun", "n03" },
    { "SLURM_STEP_ID=3 SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_JOB_NODELIST=a,b", 4, 2, "srun", "a" },
    { "SLURM_NTASKS=4 SLURM_PROCID=3", 4, 0, "srun", "" },
    { "SLURM_STEP_NUM_TASKS=4", 4, 0, "srun", "" },
    { "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=four SLURM_NTASKS=2", 2, 0, "srun", "" },
    /* mpirun */
    { "OMPI_COMM_WORLD_SIZE=1", 1, 0, "", "" },
    { "OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4", 8, 2, "mpirun", "" },
    { "OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=3", 8, 0, "mpirun", "" },
    { "OMPI_COMM_WORLD_SIZE=8 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2", 8, 0, "mpirun", "" },
    { "PMI_SIZE=4 PMI_RANK=0", 4, 0, "mpirun", "" },
    { "PMI_SIZE=4 MPI_LOCALNRANKS=4", 4, 1, "mpirun", "" },
    { "PMI_SIZE=1 PMI_RANK=0", 1, 0, "", "" },
    { "PMI_SIZE=4 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1", 4, 1, "srun", "" },
    { "MV2_COMM_WORLD_SIZE=2", 2, 0, "mpirun", "" },
    { "FLUX_JOB_SIZE=2", 2, 0, "mpirun", "" },
    { "PMIX_RANK=0 PMIX_NAMESPACE=x", 1, 0, "", "" },
    { "PMIX_RANK=2 PMIX_NAMESPACE=x", 0, 0, "mpirun", "" },
    { "PMI_SIZE=-3", 1, 0, "", "" },
    /* beyond what is counted */
    { "PMI_SIZE=2147483648", 1, 0, "", "" },
    { "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=4294967295", 4, 0, "srun", "" },
};
/* clang-format on */

Test(scheduler, one_of_several_is_known_by_its_variables)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scheduler_step step = { 0 };
        bool found = scheduler_step_find(&step, get_env, (void *)(uintptr_t)cases[i].variables);

        cr_expect(eq(int, found, cases[i].n_tasks != 1), "%s", cases[i].variables);
        if (!found || cases[i].n_tasks == 1)
            continue;
        cr_expect(step.n_tasks == cases[i].n_tasks && step.n_nodes == cases[i].n_nodes, "%s",
                  cases[i].variables);
        cr_expect(strcmp(step.starter, cases[i].starter) == 0 && strcmp(step.head, cases[i].head) == 0, "%s",
                  cases[i].variables);
    }
}

Test(scheduler, advice_names_the_options_to_add)
{
#define OWN    ", and each would be a world of its own: "
#define C10D   "--rdzv-backend c10d --rdzv-endpoint "
#define SECRET " --secret-file FILE (or --standalone, for worlds of their own)"
    static const struct {
        struct scheduler_step step;
        const char *want;
    } advice[] = {
        { { "srun", 2, 2, "n1" }, "srun started this 2 times" OWN "add --nnodes 2 " C10D "n1:29400" SECRET },
        { { "srun", 8, 2, "n1" },
          "srun started this 8 times" OWN "start one a node (srun --ntasks-per-node=1) with "
          "--nproc-per-node 4 and add --nnodes 2 " C10D "n1:29400" SECRET },
        { { "srun", 4, 1, "n1" },
          "srun started this 4 times" OWN
          "start it once, with --nproc-per-node 4 (or add --standalone, for worlds of their own)" },
        { { "mpirun", 6, 3, "" },
          "mpirun started this 6 times" OWN "start one a node (mpirun --map-by ppr:1:node) with "
          "--nproc-per-node 2 and add --nnodes 3 " C10D "HOST:29400" SECRET },
        { { "mpirun", 0, 0, "" },
          "mpirun started this several times" OWN "add --nnodes N " C10D "HOST:29400" SECRET },
    };

    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++) {
        char words[512];

        scheduler_step_advise(&advice[i].step, 29400, words, sizeof words);
        cr_expect(eq(str, words, (char *)advice[i].want));
    }
}

Test(scheduler, nodes_that_stand_idle)
{
    static const struct {
        const char *variables;
        int n;
    } jobs[] = {
        { "", 0 },
        { "SLURM_JOB_NUM_NODES=1", 0 },
        { "SLURM_JOB_NUM_NODES=two", 0 },
        { "SLURM_JOB_NUM_NODES=2 SLURM_STEP_ID=0", 0 },
        { "SLURM_JOB_NUM_NODES=2", 2 },
        /* an interactive step is no srun of the user's */
        { "SLURM_JOB_NUM_NODES=3 SLURM_STEP_ID=4294967290", 3 },
    };

    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        cr_expect(eq(int, scheduler_idle_nodes(get_env, (void *)(uintptr_t)jobs[i].variables), jobs[i].n),
                  "%s", jobs[i].variables);
}

Test(scheduler, kill_wait_of_a_line_and_what_a_save_has_of_it)
{
    static const struct {
        const char *line;
        int seconds;
    } lines[] = { { "KillWait=60\n", 60 },
                  { "  killwait = \"7\" # seconds", 7 },
                  { "#KillWait=60", -1 },
                  { "InactiveLimit=0 KillWait=45 MinJobAge=300", 45 },
                  { "OverKillWait=60", -1 },
                  { "KillWaiting=60", -1 },
                  { "KillWait=", -1 },
                  { "KillWait=-1", -1 },
                  { "", -1 } };
    static const int save_times[][2] = { { 0, 1 },  { 1, 1 },  { 5, 3 },   { 9, 5 },
                                         { 10, 5 }, { 11, 6 }, { 30, 25 }, { 300, 295 } };

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect(eq(int, scheduler_kill_wait(lines[i].line), lines[i].seconds), "%s", lines[i].line);
    for (size_t i = 0; i < sizeof save_times / sizeof *save_times; i++)
        cr_expect(eq(int, scheduler_save_time(save_times[i][0]), save_times[i][1]), "%d", save_times[i][0]);
}
