/*
 * Was this process started as one of several, by srun or mpirun? Then, without a word about where they meet, each
 * would form a world of its own and train the same thing; that is refused, with what to add. A batch script or an
 * interactive shell is one process whatever the job's size is, and so is a step of one task. What else is read of Slurm
 * is here too. Pure.
 */
#ifndef LAUNCHER_SCHEDULER_H
#define LAUNCHER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>

enum { SCHEDULER_HOST_BYTES = 256 };

struct scheduler_step {
    const char *starter;             /* "srun", "mpirun" */
    int n_tasks;                     /* 0: more than one, how many is not known */
    int n_nodes;                     /* that they run on; 0: not known */
    char head[SCHEDULER_HOST_BYTES]; /* the first of those nodes; "": not known */
};

/** True, with *step filled in, where this is one of several. */
bool scheduler_step_find(struct scheduler_step *step, const char *(*get_env)(void *arg, const char *name),
                         void *arg);

/** One line: what is the matter, and the options to add. */
void scheduler_step_advise(const struct scheduler_step *step, int port, char *out, size_t size);

/**
 * The nodes of the Slurm job that this process is part of, if there are several and no srun has started it: then it
 * runs on one of them alone, and the others stand idle. Else 0. `advice` gets one line: that, and the options to add.
 */
int scheduler_idle_nodes(const char *(*get_env)(void *arg, const char *name), void *arg, int port,
                         char *advice, size_t size);

/** The seconds that a line of slurm.conf gives as KillWait; -1: it gives none. */
int scheduler_kill_wait(const char *line);

/**
 * How many seconds a save may take where Slurm kills `kill_wait_s` after its TERM: 5 s are kept to end and report in, or
 * half of it where it is less than 10.
 */
int scheduler_save_time(int kill_wait_s);

/** The first host of a list as Slurm writes it ("n[03-05,7],m1" gives n03). False: it is none, or too long. */
bool scheduler_first_host(const char *list, char out[SCHEDULER_HOST_BYTES]);

#endif
