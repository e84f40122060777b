/*
 * The agent of a node. It starts the workers of one run, supervises them, and starts them again when the
 * world fails. It ends with the exit status of the run. fsdprun contains the agent; for each job of a daemon,
 * fsdp-agent executes fsdprun (agent/daemon/daemon.h).
 */
#ifndef AGENT_RUN_AGENT_H
#define AGENT_RUN_AGENT_H

#include "agent/config.h"

/**
 * Run a launch to its end. The calling process becomes the guard (agent/os/guard.h), and a child of it
 * becomes the agent. Call this function before the process has any thread or loop. Lines about the run go to
 * stderr; the first cause is the last of them.
 *
 * Only the guard returns, with the exit status of fsdprun. Then no process of the run is alive, except those
 * that could not be killed; a line has named them.
 */
int agent_run(const struct agent_config *config);

#endif
