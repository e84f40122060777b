/*
 * The workers on standby of a node (--standby). Each is an fsdp-train that was executed ahead of time and
 * waits at the gate of its link (shard_runtime/comm/link_gate.h). When the next generation begins, it becomes
 * the worker of its local rank, and nothing has to be executed. It belongs to no generation before that: no
 * end of a generation waits for it or kills it.
 *
 * Each local rank has at most one. Pure, except that it signals processes and closes descriptors.
 */
#ifndef AGENT_STANDBY_H
#define AGENT_STANDBY_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/os/os.h"

struct standby;

struct standby_process {
    struct os_child child;
    int socket; /* our end of its link */
    /* the descriptor for agent_os.executed(), if the start did not wait for the exec; -1: the exec is over */
    int exec_fd;
};

/** Make room for the local ranks 0 to n - 1. NULL: out of memory. */
struct standby *standby_create(int n);
/** Kill them all, and close what belongs to them. They are reaped as orphans. NULL is a no-op. */
void standby_destroy(struct standby *standby, const struct agent_os *os);

/**
 * Returns a local rank without a worker on standby, or -1. For one generation it returns each local rank only
 * once. So a program that ends at its gate is not started again and again.
 */
int standby_next(struct standby *standby, int generation);
/** Add a process that waits for this local rank. Its descriptors are taken over. */
void standby_put(struct standby *standby, int local_rank, const struct standby_process *process);
/** Take out the process of a local rank; its descriptors are the caller's then. False: there is none. */
bool standby_take(struct standby *standby, int local_rank, struct standby_process *process);
/**
 * A child has ended and is about to be reaped. If it was on standby, it is forgotten, and the function
 * returns its exec_fd, which the caller then owns. Returns -1 if it was not on standby, or if its exec was
 * over.
 */
int standby_ended(struct standby *standby, pid_t pid);
/** Write the pids of all of them into `pids`, which has room for n. Returns how many they are. */
size_t standby_pids(const struct standby *standby, pid_t *pids);

#endif
