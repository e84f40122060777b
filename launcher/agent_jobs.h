/*
 * Which jobs the commands over jobs see: this user's own, and those of an agent that serves a socket. The
 * agent says which jobs it has and where their entries in the registry are. It is not believed more than
 * that: each entry and each socket must be of the agent's user.
 */
#ifndef LAUNCHER_AGENT_JOBS_H
#define LAUNCHER_AGENT_JOBS_H

#include <stdbool.h>
#include <sys/types.h>

#include <fsdp/status.h>

#include "agent/desk/registry.h"

/**
 * Connects to the agent at the socket `path`.
 *   fd     receives the connection, which blocks, but in no call longer than some seconds; -1 after an
 *          error
 *   owner  receives the user of the agent. systemd makes the sockets of its units as root, so then it is the
 *          owner of the socket's file.
 *   FSDP_ERR_CONFIG  the path is empty or too long
 *   FSDP_ERR_PEER    no agent serves there, or it is neither this user's nor root's
 */
enum fsdp_status agent_connect(const char *path, int *fd, uid_t *owner, struct fsdp_err *err);

/**
 * Reads the jobs that a command sees.
 *   agent  the socket of --agent: the list has that agent's jobs alone. NULL: it has this user's own, and
 *          those of the agent that FSDPRUN_AGENT names, if it is set.
 *   run    what the user calls a job that may be a run directory, else NULL. If it is a directory, there is
 *          no error: its files can be read though no agent answers.
 *   patience_ms  how long the agent may take to accept, and to answer
 * Root may ask another user's agent with `agent`, and is that user from then on. FSDPRUN_AGENT must name one
 * of this user's or of root.
 * Errors as registry_read() and agent_connect(), and:
 *   FSDP_ERR_CONFIG  a folder of the registry is refused; the list has all jobs that are not in it
 *   FSDP_ERR_PEER  the agent does not answer, refuses, or says what no agent says; the list has this user's
 *                  own jobs if they were asked for
 * registry_list_fini() releases the list, also after an error.
 */
enum fsdp_status agent_jobs_read(struct registry_list *list, const char *agent, const char *run,
                                 int patience_ms, struct fsdp_err *err);

/* How long a command waits for an agent, and how long a screen that is drawn again and again does. */
enum { AGENT_PATIENCE_MS = 10000, AGENT_WATCH_PATIENCE_MS = 500 };

/** Does such a list have the jobs of an agent? */
bool agent_jobs_are_asked(const char *agent);

#endif
