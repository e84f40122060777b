/*
 * Which CPUs each worker of a node runs on (--numa-binding). Pure: topology, GPUs and allowed CPUs are
 * arguments.
 *
 * Worker r goes to the NUMA node of GPU r. More workers than GPUs share the GPUs in turn (r mod GPUs). If
 * there is no GPU, or the node of one is not known, workers are spread over the nodes that have an allowed
 * CPU. They are spread in blocks, as evenly as possible.
 *
 *   node          the allowed CPUs of the NUMA node
 *   socket        the allowed CPUs of all nodes of its socket
 *   exclusive     the node's physical cores, split evenly among the GPUs at the node; the first get the
 *                 remainder. GPUs without a worker get a share too, so that a second launcher may use them.
 *   core-complex  the CPUs of the node that share a last-level cache, one such group per worker. The group
 *                 with the most allowed CPUs comes first, then the lower number. If there are fewer groups
 *                 than workers, they take turns.
 *
 * These are torchrun's rules, except on machines without GPUs, where torchrun refuses.
 */
#ifndef AGENT_NUMA_H
#define AGENT_NUMA_H

#include <fsdp/status.h>

#include "agent/config.h"
#include "agent/placement/topology.h"

/**
 * Compute the CPUs of each worker.
 *   allowed    the CPUs that this process may use
 *   gpu_nodes  (n_gpus) the NUMA node of each GPU that workers see; -1: not known
 *   out        (n_workers) receives a set for each worker, none of them empty
 * FSDP_ERR_UNSUPPORTED: this binding is impossible here; the message names the worker and the reason.
 */
enum fsdp_status numa_bind(enum agent_numa binding, const struct topology *topology,
                           const struct cpu_mask *allowed, const int *gpu_nodes, int n_gpus, int n_workers,
                           struct cpu_mask *out, struct fsdp_err *err);

/**
 * Returns how many threads each worker can have if no two threads are to share a CPU: the least over all
 * workers, at least 1.
 */
int numa_threads(const struct cpu_mask *masks, int n_workers);

#endif
