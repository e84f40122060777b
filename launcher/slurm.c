#include "launcher/slurm.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/scheduler.h"

struct variables {
    const char *(*get)(void *arg, const char *name);
    void *arg;
};

static const char *text_of(const struct variables *variables, const char *name)
{
    const char *text = variables->get(variables->arg, name);

    return text == NULL ? "" : text;
}

/* Returns the whole number in a variable; -1: it is not set, is no such number, or is more than `most`. */
static long number_of(const struct variables *variables, const char *name, long most)
{
    const char *text = text_of(variables, name);
    char *end;
    const long number = strtol(text, &end, 10);

    return !isdigit((unsigned char)text[0]) || *end != '\0' || number > most ? -1 : number;
}

int slurm_tasks_of(const char *text, int node)
{
    for (const char *at = text; node >= 0; at++) {
        char *end;
        const long n_tasks = isdigit((unsigned char)*at) ? strtol(at, &end, 10) : 0;
        long n_nodes = 1;

        if (n_tasks < 1 || n_tasks > INT_MAX)
            return 0;
        if (strncmp(end, "(x", 2) == 0) {
            n_nodes = isdigit((unsigned char)end[2]) ? strtol(end + 2, &end, 10) : 0;
            if (n_nodes < 1 || n_nodes > HOSTLIST_MOST || *end++ != ')')
                return 0;
        }
        if (node < n_nodes)
            return *end == '\0' || *end == ',' ? (int)n_tasks : 0;
        node -= (int)n_nodes;
        at = end;
        if (*at != ',')
            return 0;
    }
    return 0;
}

/*
 * Returns how many GPUs this task may use. With --gpus-per-task these are fewer than the job has on the node.
 * Then CUDA_VISIBLE_DEVICES has the right number.
 */
static int count_gpus(const struct variables *variables)
{
    const char *visible = text_of(variables, "CUDA_VISIBLE_DEVICES");
    const long on_node = number_of(variables, "SLURM_GPUS_ON_NODE", 4096);
    int n = *visible != '\0';

    if (on_node <= 0 || n == 0)
        return on_node > 0 ? (int)on_node : 0;
    for (; *visible != '\0'; visible++)
        n += *visible == ',';
    return n;
}

/*
 * Chooses the port at which the nodes meet. Jobs, and tasks of an array, have consecutive numbers. So two
 * that run at the same time get the same port only if their numbers are hundreds apart. After a requeue the
 * port changes, because a process of the previous start may still use it.
 */
static int choose_port(long job, long number, long restarts)
{
    return SLURM_FIRST_PORT + (int)((job * 16 + number % 16 + restarts * 7919) % SLURM_N_PORTS);
}

bool slurm_step_find(struct slurm_step *step, const char *(*get_env)(void *arg, const char *name), void *arg)
{
    const struct variables variables = { get_env, arg };
    const char *list = text_of(&variables, "SLURM_STEP_NODELIST");
    const long job = number_of(&variables, "SLURM_JOB_ID", UINT32_MAX),
               number = number_of(&variables, "SLURM_STEP_ID", SCHEDULER_FIRST_SPECIAL_STEP - 1),
               n_nodes = number_of(&variables, "SLURM_STEP_NUM_NODES", HOSTLIST_MOST),
               node = number_of(&variables, "SLURM_NODEID", HOSTLIST_MOST),
               task_here = number_of(&variables, "SLURM_LOCALID", INT_MAX);
    long restarts = number_of(&variables, "SLURM_RESTART_COUNT", INT_MAX);
    int n;

    *step = (struct slurm_step){ 0 };
    if (job < 0 || number < 0 || n_nodes < 1 || node < 0 || node >= n_nodes || task_here < 0)
        return false;
    step->n_tasks_here = slurm_tasks_of(text_of(&variables, "SLURM_STEP_TASKS_PER_NODE"), (int)node);
    if (task_here >= step->n_tasks_here || hostlist_count(list) != n_nodes ||
        !hostlist_name(list, 0, step->head) || !hostlist_name(list, (int)node, step->here))
        return false;
    restarts = restarts < 0 ? 0 : restarts;
    step->n_nodes = (int)n_nodes;
    step->node = (int)node;
    step->task_here = (int)task_here;
    step->n_gpus = count_gpus(&variables);
    step->port = choose_port(job, number, restarts);
    n = snprintf(step->id, sizeof step->id, "%ld.%ld", job, number);
    if (restarts > 0)
        snprintf(step->id + n, sizeof step->id - (size_t)n, ".%ld", restarts);
    return true;
}

bool slurm_is_preempted(const char *shown)
{
    static const char field[] = " PreemptTime=";
    const char *at = strstr(shown, field);

    /* if the job is not preempted, the value is None */
    return at != NULL && isdigit((unsigned char)at[sizeof field - 1]);
}

/* Is it a name that Slurm chooses for a job to which the user gave none? */
static bool is_made_up(const char *name, const char *program)
{
    return name[0] == '\0' || strcmp(name, "wrap") == 0 || strcmp(name, "interactive") == 0 ||
           strcmp(name, program) == 0;
}

bool slurm_run_name(const char *(*get_env)(void *arg, const char *name), void *arg, const char *program,
                    const char *file, char out[SLURM_NAME_BYTES])
{
    const struct variables variables = { get_env, arg };
    const long task = number_of(&variables, "SLURM_ARRAY_TASK_ID", INT_MAX);
    const char *name = text_of(&variables, "SLURM_JOB_NAME"), *end = NULL, *slash = strrchr(file, '/');
    size_t n = 0;

    if (is_made_up(name, program)) {
        if (task < 0)
            return false;
        name = slash == NULL ? file : slash + 1;
        end = strrchr(name, '.');
    }
    for (; name + n != end && name[n] != '\0' && n < SLURM_NAME_BYTES - 16; n++)
        out[n] = isalnum((unsigned char)name[n]) || strchr("._-", name[n]) != NULL ? name[n] : '-';
    out[n] = '\0';
    if (out[0] == '-' || out[0] == '.')
        out[0] = '_'; /* the name must not look like an option or a hidden directory */
    if (task >= 0)
        snprintf(out + n, SLURM_NAME_BYTES - n, "-%ld", task);
    return true;
}
