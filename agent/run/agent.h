/*
 * The node's agent: launches the workers of one run, supervises them, restarts the world when it fails, and
 * ends with the run's exit status (docs: exit status of fsdprun). The launcher embeds it, and so does the process
 * that the daemon starts for each job (agent/daemon/daemon.h).
 */
#ifndef AGENT_RUN_AGENT_H
#define AGENT_RUN_AGENT_H

#include "agent/config.h"

/**
 * Run it to its end: the calling process becomes the guard (agent/os/guard.h), a child of it the agent. Call it
 * before any thread or loop exists; lines about the run go to stderr, the first cause last.
 *
 * Returns in the guard only, with the exit status of the contract; nothing of the run is alive then but what
 * could not be killed (reported).
 */
int agent_run(const struct agent_config *config);

#endif
