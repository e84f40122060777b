/*
 * Was this process started as one of several, by srun or mpirun? If no option says where they meet, each
 * would form a world of its own, and all would train the same. So the launch refuses, and names the options
 * to add. A batch script, an interactive shell and a step of one task are each a single process, however
 * large the job is. This file also reads other facts about Slurm. Pure.
 */
#ifndef LAUNCHER_SCHEDULER_H
#define LAUNCHER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>

#include "launcher/hostlist.h"

/*
 * Step ids from this one on are not started by srun: they are the batch script, an interactive shell and
 * others (slurm.h: SLURM_BATCH_SCRIPT, ...).
 */
#define SCHEDULER_FIRST_SPECIAL_STEP 0xfffffff0L

struct scheduler_step {
    const char *starter;            /* "srun" or "mpirun" */
    int n_tasks;                    /* number of tasks; 0: several, but the number is unknown */
    int n_nodes;                    /* nodes that the tasks run on; 0: unknown */
    char head[HOSTLIST_NAME_BYTES]; /* name of the first of these nodes; "": unknown */
};

/**
 * Is this process one of several? If so, returns true and fills in *step.
 *   get_env  returns a variable of the environment; `arg` is passed to it
 */
bool scheduler_step_find(struct scheduler_step *step, const char *(*get_env)(void *arg, const char *name),
                         void *arg);

/**
 * Writes one line for the user of such a process: what is wrong, and which options to add.
 *   port  the port in the proposed options
 */
void scheduler_step_advise(const struct scheduler_step *step, int port, char *out, size_t size);

/**
 * Returns the number of nodes of this Slurm job if it has several and this process was not started by srun.
 * Then it runs on one of them, and the others are idle. Otherwise returns 0.
 */
int scheduler_idle_nodes(const char *(*get_env)(void *arg, const char *name), void *arg);

/** Returns the seconds that this line of slurm.conf sets KillWait to; -1: the line does not set it. */
int scheduler_kill_wait(const char *line);

/**
 * Returns how many seconds a save may take if Slurm sends KILL `kill_wait_s` seconds after TERM. It leaves 5
 * seconds for the end of the run, or half of `kill_wait_s` if that is less than 10.
 */
int scheduler_save_time(int kill_wait_s);

#endif
