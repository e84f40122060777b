/*
 * The GPUs of a job that fsdp-agent runs. This fsdprun asks the agent for them, and waits until the agent
 * grants them. The agent gives them to no other job until this one has ended.
 *
 * How many it asks for:
 *   --gpus N                  N
 *   a job on the CPU          none
 *   CUDA_VISIBLE_DEVICES set  all that it names
 *   otherwise                 one for each worker, but at most all of the node
 *
 * Then it sets CUDA_VISIBLE_DEVICES to the granted GPUs. Only NVIDIA's GPUs are leased.
 */
#ifndef LAUNCHER_GPU_LEASE_H
#define LAUNCHER_GPU_LEASE_H

#include "launcher/launch.h"

struct gpu_list;

/**
 * Returns how many GPUs to ask for.
 *   asked      the number of --gpus; -1: the user did not give it
 *   job        NULL: a program
 *   device     the value of FSDP_DEVICE, used for a job whose device is auto; NULL: not set
 *   n_visible  number of GPUs that this process sees
 *   is_listed  CUDA_VISIBLE_DEVICES is set
 */
int gpu_lease_wanted(int asked, const struct job *job, const char *device, int n_workers, int n_visible,
                     bool is_listed);

/**
 * Gets the GPUs of this launch from the agent. Without an agent it does nothing. Returns 0, or the exit
 * status of fsdprun. `err` then has the line for the user, if there is one:
 *   78       the node has fewer GPUs than were asked for
 *   76       the agent has ended
 *   128 + n  signal n, or a stop by `fsdprun stop`, ended the wait
 *   77       `fsdprun stop --save` ended the wait
 * The caller must not have started a thread. If the job had to wait, it is in the registry of runs afterwards
 * (launch->config.entry).
 */
int gpu_lease_take(struct launch *launch, const struct options *options, const struct job *job,
                   const struct surroundings *around, struct fsdp_err *err);

/** Removes the job from the registry of runs if gpu_lease_take() entered it. Call it after agent_run(). */
void gpu_lease_end(struct launch *launch);

#endif
