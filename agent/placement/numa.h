/*
 * Which CPUs each worker of a node runs on (--numa-binding). Pure: machine, GPUs and what is allowed come in.
 *
 * Worker r is bound by where its GPU r is; with more workers than GPUs they share them in turn (r mod GPUs). Where there
 * is no GPU, or one does not tell its node, the workers are spread over the nodes that have an allowed CPU: in blocks,
 * as evenly as they go.
 *
 *   node          the allowed CPUs of that NUMA node
 *   socket        of all nodes of its socket
 *   exclusive     the node's physical cores, split evenly among those at the node; the first get what is left over.
 *                 GPUs no worker uses have a share too, so that a second launcher may use them
 *   core-complex  the CPUs of the node that share a last-level cache, one such group a worker: the group with most
 *                 allowed CPUs first, then by number; in turn where there are fewer groups
 *
 * These are torchrun's rules, but for machines without GPUs, where torchrun refuses.
 */
#ifndef AGENT_NUMA_H
#define AGENT_NUMA_H

#include <fsdp/status.h>

#include "agent/config.h"
#include "agent/placement/topology.h"

/**
 *   allowed    what this process may use
 *   gpu_nodes  (n_gpus) the node of each GPU the workers see, -1 where it does not tell
 *   out        (n_workers) one set each, none of them empty
 * FSDP_ERR_UNSUPPORTED: there is no such binding here; the words say for which worker, and why.
 */
enum fsdp_status numa_bind(enum agent_numa binding, const struct topology *topology,
                           const struct cpu_mask *allowed, const int *gpu_nodes, int n_gpus, int n_workers,
                           struct cpu_mask *out, struct fsdp_err *err);

/** The threads each worker can run without two on one CPU: the least any of them can; at least 1. */
int numa_threads(const struct cpu_mask *masks, int n_workers);

#endif
