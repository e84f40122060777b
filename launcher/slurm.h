/*
 * Reads from Slurm's variables which step srun has started this process in, and what follows from that. A
 * task finds there everything that several nodes need to meet, except a secret. Pure.
 */
#ifndef LAUNCHER_SLURM_H
#define LAUNCHER_SLURM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/hostlist.h"

enum {
    SLURM_ID_BYTES = 64,
    SLURM_NAME_BYTES = 200,
    SLURM_FIRST_PORT = 20000, /* below the ports that Linux chooses for connections */
    SLURM_N_PORTS = 10000
};

/* One step, as this task sees it. All components of a heterogeneous step together are one. */
struct slurm_step {
    int n_nodes, node;              /* number of the step's nodes, and which of them this is */
    int n_tasks_here, task_here;    /* number of tasks on this node, and which of them this is */
    int n_gpus;                     /* GPUs that this task may use; 0: the user asked Slurm for none */
    char head[HOSTLIST_NAME_BYTES]; /* name of the first node */
    char here[HOSTLIST_NAME_BYTES]; /* name of this node */
    int port; /* port at which the nodes meet; other steps, jobs and restarts get other ports */
    char id[SLURM_ID_BYTES]; /* id of this start of the step: "12.0", and "12.0.1" after a requeue */
};

/**
 * Is this process a task of a step that srun has started? If so, returns true and fills in *step. If a
 * variable is missing, or two contradict each other, it returns false.
 *   get_env  returns a variable of the environment; `arg` is passed to it
 */
bool slurm_step_find(struct slurm_step *step, const char *(*get_env)(void *arg, const char *name), void *arg);

/**
 * Returns the number of tasks on a node from Slurm's notation: "3,1(x2)" means 3 on node 0, and 1 each on
 * nodes 1 and 2. 0: the text is malformed, or has no such node.
 */
int slurm_tasks_of(const char *text, int node);

/**
 * Does the output `shown` of `scontrol show job` say that the job is being preempted? Then it must end within
 * the grace time of its partition. If it has ended by then, Slurm treats it as complete and does not requeue
 * it.
 */
bool slurm_is_preempted(const char *shown);

/**
 * Writes the default name of a run: the name of the Slurm job, and for a task of an array also "-" and its
 * number. A character that does not suit the name of a directory becomes "-". If the user named no job, Slurm
 * chooses the name of the program, "wrap" or "interactive". In that case the name of the job file is used for
 * a task of an array; otherwise this function returns false.
 *   program  the name by which fsdprun was called
 *   file     the path of the job file
 */
bool slurm_run_name(const char *(*get_env)(void *arg, const char *name), void *arg, const char *program,
                    const char *file, char out[SLURM_NAME_BYTES]);

#endif
