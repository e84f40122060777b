/*
 * fsdprun as a client of an fsdp-agent that runs as a service. It sends its job to the agent and waits until
 * the job has ended. Meanwhile it passes signals on to the job. Its exit status is the job's.
 *
 * The agent executes fsdprun with the same arguments, environment, working directory, umask, soft limits, CPU
 * affinity and standard streams. So the job runs exactly as it would have run in this process.
 */
#ifndef LAUNCHER_CLIENT_H
#define LAUNCHER_CLIENT_H

#include <stdbool.h>

#include "launcher/options.h"

/**
 * Runs this command line under the agent at the socket that --agent names. Without --agent, the option
 * --detach finds an agent or starts one (launcher/own_agent.h).
 *   options   of this command line
 *   argv      the command line itself, terminated by NULL
 *   is_job    the command line runs a job file, so the agent can ask the job for a checkpoint
 *   own_path  the path of this fsdprun
 *
 * With --detach it returns once the workers run, and prints only the job's id to stdout. Such a job's output
 * goes to its files only, and the job outlives this process. Until its workers run, a signal to this process
 * ends the job too, and the end of the job ends this process. Exception: if this process is killed or gets
 * HUP while the job waits for GPUs, the job stays in the queue.
 *
 * Returns the exit status of fsdprun. If that is not the job's own, one line on stderr says why:
 *   2        signals that exclude each other, or a socket path that is too long
 *   75       no agent listens there, or it belongs to another user, or it is of another build
 *   76       the agent ended, and its jobs with it
 *   128 + n  signal n came before the job was accepted
 * The caller must not have started a thread: this function blocks signals and reads them from a descriptor.
 */
int client_run(const struct options *options, char *const *argv, bool is_job, const char *own_path);

#endif
