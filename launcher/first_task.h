/*
 * Several tasks of a Slurm step on one node, as with --ntasks-per-node=8: the first one launches, the others
 * wait and end with its status. They meet at a socket with an abstract name, so nothing stays on a disk. If
 * the first one is killed, the kernel lets the others know.
 */
#ifndef LAUNCHER_FIRST_TASK_H
#define LAUNCHER_FIRST_TASK_H

#include <stdint.h>

#include <fsdp/status.h>

#include "launcher/slurm.h"

enum { FIRST_TASK_WAIT_MS = 60000 }; /* how long the tasks of a node wait for each other */

/**
 * The first task: from now on the others can find it.
 *   fd  gets a descriptor for first_task_end(); -1 if there are no others
 */
enum fsdp_status first_task_begin(int *fd, const struct slurm_step *step, struct fsdp_err *err);

/**
 * Tell the others `status`, and close the descriptor. A task that has not come yet is waited for.
 *   timeout_ms  for how long; 0 or less: not at all
 */
void first_task_end(int fd, const struct slurm_step *step, int status, int64_t timeout_ms);

/**
 * Another task: wait until the first one has ended.
 *   timeout_ms  how long it may take until it begins
 *   status      gets its exit status; 137 if it was killed
 *   FSDP_ERR_PEER  it has not begun
 */
enum fsdp_status first_task_await(const struct slurm_step *step, int64_t timeout_ms, int *status,
                                  struct fsdp_err *err);

#endif
