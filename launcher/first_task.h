/*
 * Coordinates several tasks of a Slurm step on one node, for example with --ntasks-per-node=8. The first task
 * launches the job; the others wait for it and end with its status. They connect to it by a socket with an
 * abstract name, so nothing stays on a disk. If the first task is killed, the kernel closes these
 * connections. Another user can neither speak for the first task nor hear it. But he can take the name, or
 * fill the queue of the socket: then the job, or the other tasks, end with one line (SECURITY.md, "Limits").
 */
#ifndef LAUNCHER_FIRST_TASK_H
#define LAUNCHER_FIRST_TASK_H

#include <stdint.h>

#include <fsdp/status.h>

#include "launcher/slurm.h"

enum { FIRST_TASK_WAIT_MS = 60000 }; /* how long the tasks of a node wait for each other */

/**
 * Called by the first task. From now on the other tasks can connect to it.
 *   fd  receives a descriptor for first_task_end(); -1 if there are no other tasks
 */
enum fsdp_status first_task_begin(int *fd, const struct slurm_step *step, struct fsdp_err *err);

/**
 * Called by the first task at its end. Sends `status` to the other tasks, and closes `fd`. It waits for tasks
 * that have not connected yet.
 *   timeout_ms  how long it waits for them; 0 or less: not at all
 */
void first_task_end(int fd, const struct slurm_step *step, int status, int64_t timeout_ms);

/**
 * Called by every other task. Waits until the first task has ended. Signals that can be ignored are ignored
 * from now on.
 *   timeout_ms  how long to wait until the first task calls first_task_begin()
 *   status      receives the first task's exit status; 137 if it was killed
 *   FSDP_ERR_PEER  the first task did not call first_task_begin() in that time, or strangers at its socket
 *                  keep this task out
 */
enum fsdp_status first_task_await(const struct slurm_step *step, int64_t timeout_ms, int *status,
                                  struct fsdp_err *err);

#endif
