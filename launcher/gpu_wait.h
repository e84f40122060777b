/*
 * A job of fsdp-agent that waits for GPUs. Meanwhile it is in the registry of runs, and answers as a run
 * would (agent/desk/desk.h). `fsdprun ps` shows it as queued, and `fsdprun stop` ends it.
 */
#ifndef LAUNCHER_GPU_WAIT_H
#define LAUNCHER_GPU_WAIT_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "agent/config.h"
#include "agent/daemon/lease.h"

struct registry_entry;

struct gpu_wait {
    int channel; /* to the agent */
    const struct agent_config *config;
    bool detached;     /* stderr is read by the client, until the workers run */
    const char *agent; /* the agent's socket, for the user; NULL: the user named none */
};

/**
 * Wait until the agent grants what was asked for. Prints one line about it.
 *   answer    for what it waits; receives the grant
 *   entry     receives the entry of the registry, for the run; NULL: there is none
 *   entry_fd  receives its socket, which listens; -1: there is none
 * Returns 0; else the exit status of gpu_lease_take(). Then nothing is left.
 */
int gpu_wait(const struct gpu_wait *wait, struct lease_answer *answer, struct registry_entry **entry,
             int *entry_fd, struct fsdp_err *err);

#endif
