/*
 * Finds the agent for --detach without --agent, or starts one. It looks in this order:
 *
 *   1. The default socket of fsdp-agent (control_default_socket()).
 *   2. agent.sock in the folder of the registry of runs (agent/desk/registry.h).
 *   3. If no agent listens at either, it starts one at the second. That agent ends after OWN_AGENT_IDLE_S
 *      without a job.
 *
 * Several processes may do so at once. The lock on the folder lets one of them start an agent, and the lock
 * of the socket lets one agent listen. An agent that is about to end closes the connection without an answer.
 * Then the caller calls own_agent_find() again.
 */
#ifndef LAUNCHER_OWN_AGENT_H
#define LAUNCHER_OWN_AGENT_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

enum { OWN_AGENT_IDLE_S = 60 };

/**
 * Finds or starts the agent.
 *   path      receives the path of its socket
 *   own_path  the path of this fsdprun; fsdp-agent is in the same folder
 *   FSDP_ERR_CONFIG  the folder is refused, or its path is too long for a socket
 *   FSDP_ERR_PEER    the agent did not start; it has printed why
 *   FSDP_ERR_IO      a system call failed
 * The caller must not have started a thread or blocked signals: Ctrl-C ends the wait.
 */
enum fsdp_status own_agent_find(char *path, size_t size, const char *own_path, struct fsdp_err *err);

#endif
