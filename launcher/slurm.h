/*
 * What Slurm's variables say about the step that srun has started this process in, and what follows from
 * them. Slurm gives a task everything that several nodes need to meet but a secret. Pure.
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
    SLURM_FIRST_PORT = 20000, /* below the ports that Linux gives to connections */
    SLURM_N_PORTS = 10000
};

/* One step, as this task sees it. Of a heterogeneous step all components are one. */
struct slurm_step {
    int n_nodes, node;              /* nodes of the step, and the place of this one among them */
    int n_tasks_here, task_here;    /* tasks on this node, and the place of this one among them */
    int n_gpus;                     /* that this task may use; 0: Slurm was not asked for any */
    char head[HOSTLIST_NAME_BYTES]; /* the first node */
    char here[HOSTLIST_NAME_BYTES]; /* this node */
    int port;                /* where the nodes meet: it differs between steps, jobs and their restarts */
    char id[SLURM_ID_BYTES]; /* of this start of the step: "12.0", and "12.0.1" after a requeue */
};

/**
 * Is this process a task of a step that srun has started? Then fill in *step and return true. If a variable
 * is missing, or if two contradict each other, nothing follows from them: false.
 *   get_env  looks a variable of the environment up; `arg` is its first argument
 */
bool slurm_step_find(struct slurm_step *step, const char *(*get_env)(void *arg, const char *name), void *arg);

/**
 * Return the number of tasks on a node in Slurm's notation: "3,1(x2)" has 3 on node 0, and 1 on nodes 1 and
 * 2. 0: the text is malformed, or has no such node.
 */
int slurm_tasks_of(const char *text, int node);

/**
 * Does `scontrol show job` say that the job is being preempted? It must then end within the grace time of its
 * partition. If it does, Slurm takes it for a job that has ended by itself, and does not requeue it.
 */
bool slurm_is_preempted(const char *shown);

/**
 * Write the name that a run gets by default: the job's name, and of an array also the number of the task.
 * What does not suit the name of a directory becomes "-". If the user has named no job, Slurm takes the name
 * of the program, "wrap" or "interactive". Then it is the job file's name, in an array only: else false.
 *   program  the name by which fsdprun was called
 *   file     the job file's path
 */
bool slurm_run_name(const char *(*get_env)(void *arg, const char *name), void *arg, const char *program,
                    const char *file, char out[SLURM_NAME_BYTES]);

#endif
