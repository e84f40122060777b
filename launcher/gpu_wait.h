/*
 * Lets a job of fsdp-agent wait for GPUs. During the wait the job is in the registry of runs, and answers the
 * commands over jobs as a run would (agent/desk/desk.h). `fsdprun ps` shows it as queued, and `fsdprun stop`
 * ends it.
 */
#ifndef LAUNCHER_GPU_WAIT_H
#define LAUNCHER_GPU_WAIT_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "agent/config.h"
#include "agent/daemon/lease.h"

struct registry_entry;

struct gpu_wait {
    int channel; /* socket to the agent */
    const struct agent_config *config;
    bool detached;     /* the client reads stderr until the workers run */
    const char *agent; /* path of the agent's socket, for messages; NULL: the user named none */
};

/**
 * Waits until the agent grants the GPUs. Prints one line about the wait.
 *   answer    what the job waits for, as the agent said; receives the grant
 *   entry     receives the job's entry in the registry, which the run takes over; NULL: there is none
 *   entry_fd  receives the listening socket of that entry; -1: there is none
 * Returns 0, or an exit status as gpu_lease_take() does. Then the entry and its socket are gone too.
 */
int gpu_wait(const struct gpu_wait *wait, struct lease_answer *answer, struct registry_entry **entry,
             int *entry_fd, struct fsdp_err *err);

#endif
