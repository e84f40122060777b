/*
 * The GPUs of a job that fsdp-agent runs: this fsdprun asks the agent for them, and waits until it has them.
 * Other jobs of the agent do not get them until this one has ended.
 *
 * How many it asks for:
 *   --gpus N                  N
 *   a job on the CPU          none
 *   CUDA_VISIBLE_DEVICES set  all that it names
 *   else                      one for each worker; all of the node where a program has more workers than that
 *
 * Then CUDA_VISIBLE_DEVICES names what it got. Only NVIDIA's GPUs are leased.
 */
#ifndef LAUNCHER_GPU_LEASE_H
#define LAUNCHER_GPU_LEASE_H

#include "launcher/launch.h"

struct gpu_list;

/**
 * Returns how many GPUs to ask for.
 *   asked      the number of --gpus; -1: not given
 *   job        NULL: a program
 *   device     FSDP_DEVICE, which decides for a job whose device is auto; NULL: not set
 *   n_visible  as many as this process sees
 *   is_listed  CUDA_VISIBLE_DEVICES is set
 */
int gpu_lease_wanted(int asked, const struct job *job, const char *device, int n_workers, int n_visible,
                     bool is_listed);

/**
 * Get the GPUs of this launch. Without an agent this does nothing. Returns 0, or the exit status of fsdprun,
 * with its line in `err` if there is one:
 *   78       the node has fewer
 *   76       the agent is gone
 *   128 + n  signal n, or a stop by `fsdprun stop`, ended the wait
 *   77       `fsdprun stop --save` ended it
 * Call it before any thread exists. A job that has waited is in the registry then: launch->config.entry.
 */
int gpu_lease_take(struct launch *launch, const struct options *options, const struct job *job,
                   const struct surroundings *around, struct fsdp_err *err);

/** Leave the registry, if the job has waited. After agent_run(). */
void gpu_lease_end(struct launch *launch);

#endif
