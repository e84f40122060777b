#include "launcher/scheduler.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct surroundings_env {
    const char *(*get)(void *arg, const char *name);
    void *arg;
};

static const char *text_of(const struct surroundings_env *env, const char *name)
{
    const char *text = env->get(env->arg, name);

    return text == NULL || *text == '\0' ? NULL : text;
}

/* Returns the number in a variable; -1: it is not set, or is no number. */
static long number_of(const struct surroundings_env *env, const char *name)
{
    const char *text = text_of(env, name);
    char *end = NULL;
    long number = text == NULL ? -1 : strtol(text, &end, 10);

    return text == NULL || end == text || *end != '\0' || number < 0 ? -1 : number;
}

/*
 * Returns the number of tasks or nodes in a variable; -1: it is not set, is no number, or does not fit an
 * int.
 */
static int count_of(const struct surroundings_env *env, const char *name)
{
    const long number = number_of(env, name);

    return number > INT_MAX ? -1 : (int)number;
}

/*
 * Finds the Slurm step that this process is a task of, if it has several tasks. A batch script runs once and
 * is no step, but its SLURM_NTASKS is the number of the job's tasks and its SLURM_PROCID is 0. Under srun the
 * numbers of the step count, because the job may be larger.
 */
static bool find_slurm(struct scheduler_step *step, const struct surroundings_env *env)
{
    long id = number_of(env, "SLURM_STEP_ID");
    int tasks = count_of(env, "SLURM_STEP_NUM_TASKS"), nodes = count_of(env, "SLURM_STEP_NUM_NODES");
    bool by_srun =
        (id >= 0 && id < SCHEDULER_FIRST_SPECIAL_STEP) || (id < 0 && number_of(env, "SLURM_PROCID") > 0);
    const char *list = text_of(env, "SLURM_STEP_NODELIST");

    if (tasks < 0)
        tasks = by_srun ? count_of(env, "SLURM_NTASKS") : -1;
    if (tasks < 2 || id >= SCHEDULER_FIRST_SPECIAL_STEP)
        return false;
    if (nodes < 1)
        nodes = count_of(env, "SLURM_NNODES");
    if (list == NULL)
        list = text_of(env, "SLURM_JOB_NODELIST");
    *step = (struct scheduler_step){ .starter = "srun", .n_tasks = tasks, .n_nodes = nodes < 1 ? 0 : nodes };
    if (list != NULL)
        hostlist_name(list, 0, step->head);
    return true;
}

/* For each kind of MPI starter: the variables with the number of all processes, and of those on this node. */
static const struct {
    const char *size, *local_size;
} openmpi[] = { { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE" } },
  others[] = { { "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE" },
               { "PMI_SIZE", "MPI_LOCALNRANKS" },
               { "FLUX_JOB_SIZE", NULL } };

static bool find_mpi(struct scheduler_step *step, const struct surroundings_env *env, const char *size,
                     const char *local_size)
{
    int tasks = count_of(env, size), local = local_size == NULL ? -1 : count_of(env, local_size);

    if (tasks < 2)
        return false;
    *step = (struct scheduler_step){ .starter = "mpirun", .n_tasks = tasks };
    if (local > 0 && tasks % local == 0)
        step->n_nodes = tasks / local;
    return true;
}

bool scheduler_step_find(struct scheduler_step *step, const char *(*get_env)(void *arg, const char *name),
                         void *arg)
{
    const struct surroundings_env env = { get_env, arg };

    /*
     * Open MPI is looked for first: under Slurm its daemons are a step, and the numbers of that step are not
     * those of the MPI processes.
     */
    if (find_mpi(step, &env, openmpi[0].size, openmpi[0].local_size) || find_slurm(step, &env))
        return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (find_mpi(step, &env, others[i].size, others[i].local_size))
            return true;
    /*
     * PMIx tells a process its rank but not how many there are. So rank 0 may be the only one. A higher rank
     * is one of several.
     */
    if (number_of(&env, "PMIX_RANK") < 1)
        return false;
    *step = (struct scheduler_step){ .starter = "mpirun" };
    return true;
}

void scheduler_step_advise(const struct scheduler_step *step, int port, char *out, size_t size)
{
    bool is_srun = strcmp(step->starter, "srun") == 0;
    int nodes = step->n_nodes == 0 ? step->n_tasks : step->n_nodes,
        per_node = nodes == 0 ? 0 : step->n_tasks / nodes;
    char tasks[32] = "several", first[96] = "", count[32] = "N";

    if (step->n_tasks > 0)
        snprintf(tasks, sizeof tasks, "%d", step->n_tasks);
    if (nodes > 0)
        snprintf(count, sizeof count, "%d", nodes);
    if (per_node > 1)
        snprintf(first, sizeof first, "start one a node (%s) with --nproc-per-node %d and ",
                 is_srun ? "srun --ntasks-per-node=1" : "mpirun --map-by ppr:1:node", per_node);
    if (nodes == 1)
        snprintf(out, size,
                 "%s started this %s times, and each would be a world of its own: start it once, with "
                 "--nproc-per-node %s (or add --standalone, for worlds of their own)",
                 step->starter, tasks, tasks);
    else
        snprintf(
            out, size,
            "%s started this %s times, and each would be a world of its own: %sadd --nnodes %s "
            "--rdzv-backend c10d --rdzv-endpoint %s:%d --secret-file FILE (or --standalone, for worlds of "
            "their own)",
            step->starter, tasks, first, count, step->head[0] == '\0' ? "HOST" : step->head, port);
}

int scheduler_idle_nodes(const char *(*get_env)(void *arg, const char *name), void *arg)
{
    const struct surroundings_env env = { get_env, arg };
    const long id = number_of(&env, "SLURM_STEP_ID");
    const int nodes = count_of(&env, "SLURM_JOB_NUM_NODES");

    return nodes < 2 || (id >= 0 && id < SCHEDULER_FIRST_SPECIAL_STEP) ? 0 : nodes;
}

/*
 * Finds KillWait in a line of slurm.conf by Slurm's rules. Names are in upper or lower case, a line may have
 * several settings, and blanks may be around "=". Values may have quotes, and a comment begins with "#".
 */
int scheduler_kill_wait(const char *line)
{
    static const char key[] = "KillWait";

    for (const char *at = line; *at != '\0' && *at != '#'; at++) {
        const char *value = at + strlen(key);
        char *end;
        long seconds;

        if (strncasecmp(at, key, strlen(key)) != 0 || (at > line && !isspace((unsigned char)at[-1])))
            continue;
        value += strspn(value, " \t");
        if (*value++ != '=')
            continue;
        value += strspn(value, " \t\"");
        seconds = strtol(value, &end, 10);
        if (end != value && seconds >= 0 && seconds <= 65533) /* Slurm's own limit */
            return (int)seconds;
    }
    return -1;
}

int scheduler_save_time(int kill_wait_s)
{
    const int half = (kill_wait_s + 1) / 2, less = kill_wait_s - 5;

    return less > half ? less : half > 0 ? half : 1;
}
