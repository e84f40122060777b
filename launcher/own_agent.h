/*
 * The agent for --detach without --agent: one that serves this user already, else one that is started now.
 *
 *   1. The default socket of fsdp-agent (control_default_socket()).
 *   2. agent.sock in the folder of the registry of runs (agent/desk/registry.h).
 *   3. If no agent serves either, one is started at the second. It ends by itself after OWN_AGENT_IDLE_S
 *      without a job.
 *
 * Many may do so at once. The lock on the folder lets one of them start an agent, and the lock of the socket
 * lets one agent serve. An agent that ends just now hangs up without an answer: then call this again.
 */
#ifndef LAUNCHER_OWN_AGENT_H
#define LAUNCHER_OWN_AGENT_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

enum { OWN_AGENT_IDLE_S = 60 };

/**
 * Find or start the agent.
 *   path  receives the path of its socket
 *   own_path  of this fsdprun; fsdp-agent is in the same folder
 *   FSDP_ERR_CONFIG  the folder is refused, or its path is too long for a socket
 *   FSDP_ERR_PEER    the agent did not start; it has printed why
 *   FSDP_ERR_IO      the system refuses something
 * Call it before any thread exists, with the signals as they were at the start: Ctrl-C ends the wait.
 */
enum fsdp_status own_agent_find(char *path, size_t size, const char *own_path, struct fsdp_err *err);

#endif
