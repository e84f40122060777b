/*
 * Was this process started as one of several, by srun or mpirun? Without options that say where they meet,
 * each of them would form a world of its own, and all would train the same thing. The launch refuses that,
 * and names the options to add. A batch script, an interactive shell and a step of one task are one process
 * each, however large the job is. What else is read of Slurm is here too. Pure.
 */
#ifndef LAUNCHER_SCHEDULER_H
#define LAUNCHER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>

#include "launcher/hostlist.h"

/*
 * Step ids from here on are not of srun: batch script, interactive shell and others (slurm.h:
 * SLURM_BATCH_SCRIPT, ...).
 */
#define SCHEDULER_FIRST_SPECIAL_STEP 0xfffffff0L

struct scheduler_step {
    const char *starter;            /* "srun" or "mpirun" */
    int n_tasks;                    /* 0: more than one, but the number is not known */
    int n_nodes;                    /* nodes that the tasks run on; 0: not known */
    char head[HOSTLIST_NAME_BYTES]; /* the first of those nodes; "": not known */
};

/**
 * Is this process one of several? Then return true and fill in *step.
 *   get_env  looks a variable of the environment up; `arg` is its first argument
 */
bool scheduler_step_find(struct scheduler_step *step, const char *(*get_env)(void *arg, const char *name),
                         void *arg);

/**
 * Write one line for the user of such a process: the problem, and the options to add.
 *   port  the port that the line proposes to meet at
 */
void scheduler_step_advise(const struct scheduler_step *step, int port, char *out, size_t size);

/**
 * Return the number of nodes of the Slurm job that this process is part of, if there are several and srun has
 * not started it. It then runs on one of them, and the others are idle. Else return 0.
 */
int scheduler_idle_nodes(const char *(*get_env)(void *arg, const char *name), void *arg);

/** Return the seconds that a line of slurm.conf sets KillWait to; -1: the line does not set it. */
int scheduler_kill_wait(const char *line);

/**
 * Return how many seconds a save may take if Slurm sends KILL `kill_wait_s` after its TERM. 5 s are kept for
 * the end of the run and its last lines, or half of it if it is less than 10 s.
 */
int scheduler_save_time(int kill_wait_s);

#endif
