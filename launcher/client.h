/*
 * fsdprun as a client: hands its job to a standing fsdp-agent and stays until the job has ended, passing signals on
 * and the exit status back. The job gets this process's environment, working directory, umask, soft limits,
 * affinity, stdin, stdout and stderr, so that it runs as it would have run here, bit for bit.
 */
#ifndef LAUNCHER_CLIENT_H
#define LAUNCHER_CLIENT_H

#include <stdbool.h>

#include "agent/config.h"

/**
 * Run `config` under the agent at `socket_path`. `detach`: return once its workers run, with the job's id alone on
 * stdout; its output goes to its log files alone, and it outlives this process. One that ends before its workers run
 * ends this process with its lines and its status; so does a signal to this process until then.
 *
 * Returns the exit status of fsdprun, after one line on stderr where it is not the job's own:
 *   2   --detach for a program whose output has nowhere to go (no run directory)
 *   75  no agent listens there, it is another user's, or of another build
 *   76  the agent went away: its jobs have been ended
 *   128 + n for signal n before the job was accepted
 * Call it before any thread exists: signals are blocked and taken from a descriptor.
 */
int client_run(const char *socket_path, const struct agent_config *config, bool detach);

#endif
