/*
 * Which CPUs this machine has and what they share, from /sys/devices/system. A kernel without NUMA is one node; what a
 * CPU does not tell about itself it shares with nobody (its core), or with all (its package).
 */
#ifndef AGENT_TOPOLOGY_H
#define AGENT_TOPOLOGY_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "agent/os/cpu_mask.h"

struct topology_cpu {
    bool online;
    int node, package;
    int core;  /* the lowest CPU of its physical core */
    int cache; /* the lowest CPU that shares its last-level cache; -1: not told */
};

struct topology {
    int n_cpus; /* one above the highest online */
    struct topology_cpu cpus[CPU_MASK_CPUS];
};

/**
 *   root  put before /sys; "" is this machine
 * One block, to be freed with free(). FSDP_ERR_UNSUPPORTED: it cannot be read; FSDP_ERR_NOMEM.
 */
enum fsdp_status topology_read(struct topology **out, const char *root, struct fsdp_err *err);

/** The NUMA node that a PCI device is at; -1 where neither machine nor address tells. */
int topology_node_of_pci(const char *root, const char *pci);

#endif
