/*
 * fsdprun as a client of a standing fsdp-agent: it hands its job over and stays until the job has ended.
 * Meanwhile it passes signals on, and at the end it returns the job's exit status.
 *
 * The agent executes fsdprun with the same arguments, environment, working directory, umask, soft limits,
 * affinity and standard streams. So the job runs as it would have run here, bit for bit.
 */
#ifndef LAUNCHER_CLIENT_H
#define LAUNCHER_CLIENT_H

#include <stdbool.h>

#include "launcher/options.h"

/**
 * Run this command line under the agent at the socket that --agent names. Without --agent, --detach finds one
 * or starts it (launcher/own_agent.h).
 *   options  of this command line
 *   argv     the command line itself, zero-terminated
 *   is_job   it runs a job file: the agent can ask it for a checkpoint
 *   own_path of this fsdprun
 *
 * With --detach it returns once the workers run, with the job's id alone on stdout. The output of such a job
 * goes to its files only, and the job outlives this process. Until its workers run, the end of the job, or a
 * signal to this process, ends both. Exception: a job that waits for GPUs stays in the queue if this process
 * is killed, or gets HUP.
 *
 * Returns the exit status of fsdprun, after one line on stderr where it is not the job's own:
 *   2        signals that exclude each other, or a socket path that is too long
 *   75       no agent listens there, it is another user's, or it is of another build
 *   76       the agent went away, and its jobs with it
 *   128 + n  signal n came before the job was accepted
 * Call it before any thread exists: it blocks signals and reads them from a descriptor.
 */
int client_run(const struct options *options, char *const *argv, bool is_job, const char *own_path);

#endif
