/*
 * The Python stacks of hung ranks, by Python's faulthandler.
 *
 *   1. A worker of a watched program inherits a memfd. FSDPRUN_STACKS=FD:INODE:SIGNAL names it, and a signal.
 *   2. Whatever calls faulthandler.register(SIGNAL, file=FD) in the worker makes that signal write the stacks
 *      of all threads to the memfd. With --python-stacks a sitecustomize module does so, which Python imports
 *      when it starts: PYTHONPATH begins with a zip archive in another memfd.
 *   3. To ask a rank, the memfd is emptied and the signal is sent. The memfd is read when it no longer grows.
 *      The signal is sent only to a process that handles it and has the memfd open. So it ends no process,
 *      and disturbs no other program that handles signals.
 *
 * A memfd, and not a pipe: a signal handler must never wait for a reader.
 */
#ifndef AGENT_PYTHON_STACKS_H
#define AGENT_PYTHON_STACKS_H

#include <stdbool.h>
#include <sys/types.h>

#include "agent/watch/python_stack.h"

/** The signal. A program may use it for nothing else. */
int python_stacks_signal(void);

/**
 * Make a memfd for the stacks of a worker, to which all writers append: close-on-exec, the caller's. -1: it
 * cannot be made.
 */
int python_stacks_open(void);

/** Make a memfd with the archive, which has the module `sitecustomize`. -1: it cannot be made. */
int python_stacks_archive(void);

/* One rank to ask. */
struct python_ask {
    pid_t worker; /* its process; 0: none lives */
    /* the worker's process, or else its first descendant that may be asked; 0: there is none */
    pid_t python;
    int fd;        /* the caller's descriptor of its memfd; -1: there is none */
    int worker_fd; /* the descriptor of the memfd in the worker */
    bool asked;
    struct python_stack stack; /* n_frames 0: there is none */
    /* why there are no stacks; NULL: there are some, or the caller did not ask for them */
    const char *missing;
};

/** Fill in `python` of each rank. For a thread of its own. */
void python_stacks_find(struct python_ask *asks, int n);

/**
 * Ask all ranks at once, and take their answers, for at most half a second.
 *   directory  working directory of the programs, for shorter paths
 * Blocking: for a thread of its own.
 */
void python_stacks_take(struct python_ask *asks, int n, const char *directory);

#endif
