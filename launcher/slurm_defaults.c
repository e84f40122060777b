#include "launcher/slurm_defaults.h"

#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/require.h"

static bool is_set(const struct surroundings *around, const char *name)
{
    const char *text = around->get_env(around->arg, name);

    return text != NULL && *text != '\0';
}

/* Did the user say where the nodes meet? */
static bool is_arranged(const struct options *options)
{
    return options_has(options, OPT_STANDALONE) || options_has(options, OPT_RDZV_ENDPOINT) ||
           options_has(options, OPT_MASTER_ADDR);
}

/*
 * Sets where several nodes meet. The order of the tasks decides the order of ranks
 * (agent/rendezvous/identity).
 */
static enum fsdp_status set_meeting(struct slurm_defaults *defaults, struct options *options,
                                    struct fsdp_err *err)
{
    const struct slurm_step *step = &defaults->step;
    const char *backend = options->of[OPT_RDZV_BACKEND].text;

    snprintf(defaults->endpoint, sizeof defaults->endpoint, "%s:%d", step->head, step->port);
    OK_OR_RETURN(options_default(options, OPT_RDZV_ENDPOINT, "SLURM_STEP_NODELIST", defaults->endpoint, err));
    if (backend != NULL && strcmp(backend, "static") == 0) {
        snprintf(defaults->node, sizeof defaults->node, "%d", step->node);
        return options_default(options, OPT_NODE_RANK, "SLURM_NODEID", defaults->node, err);
    }
    return options_default(options, OPT_RDZV_BACKEND, "SLURM_STEP_ID", "c10d", err);
}

/*
 * Sets the number of workers on this node. It is the number of tasks on it, if there are several. Otherwise
 * it is the number of GPUs that the user asked Slurm for.
 */
static enum fsdp_status set_workers(struct slurm_defaults *defaults, struct options *options,
                                    struct fsdp_err *err)
{
    const struct slurm_step *step = &defaults->step;
    const bool by_task = step->n_tasks_here > 1;

    if (!by_task && step->n_gpus == 0)
        return FSDP_OK;
    snprintf(defaults->n_workers, sizeof defaults->n_workers, "%d",
             by_task ? step->n_tasks_here : step->n_gpus);
    return options_default(options, OPT_NPROC_PER_NODE,
                           by_task ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_GPUS_ON_NODE", defaults->n_workers,
                           err);
}

enum fsdp_status slurm_defaults_apply(struct slurm_defaults *defaults, struct options *options, bool is_job,
                                      struct surroundings *around, struct fsdp_err *err)
{
    if (!is_set(around, "SLURM_JOB_ID"))
        return FSDP_OK;
    /* not with --forward-signals, which may give USR1 and TERM another meaning */
    if (is_job && !options_has(options, OPT_FORWARD_SIGNALS))
        OK_OR_RETURN(options_default(options, OPT_SAVE_ON_SIGNAL, "SLURM_JOB_ID", "1", err));
    if (is_job &&
        slurm_run_name(around->get_env, around->arg, options->program, options->rest[0], defaults->name))
        options->run_name = defaults->name;
    if (is_arranged(options) || !slurm_step_find(&defaults->step, around->get_env, around->arg))
        return FSDP_OK;
    around->slurm = &defaults->step;
    if (defaults->step.n_nodes > 1) {
        snprintf(defaults->n_nodes, sizeof defaults->n_nodes, "%d", defaults->step.n_nodes);
        OK_OR_RETURN(options_default(options, OPT_NNODES, "SLURM_STEP_NUM_NODES", defaults->n_nodes, err));
        OK_OR_RETURN(set_meeting(defaults, options, err));
    }
    if (!is_job)
        OK_OR_RETURN(options_default(options, OPT_RDZV_ID, "SLURM_STEP_ID", defaults->step.id, err));
    return set_workers(defaults, options, err);
}
