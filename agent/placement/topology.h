/*
 * The CPUs of this machine and what they share, from /sys/devices/system. A kernel without NUMA has one node.
 * A CPU whose files are missing counts as a core of its own, in one package with all others.
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
    int cache; /* the lowest CPU that shares its last-level cache; -1: not known */
};

struct topology {
    int n_cpus; /* the highest online CPU, plus 1 */
    struct topology_cpu cpus[CPU_MASK_CPUS];
};

/**
 * Read the topology. *out is one block; free it with free().
 *   root  prefix of /sys; "" is this machine
 *   FSDP_ERR_UNSUPPORTED  it cannot be read
 *   FSDP_ERR_NOMEM        out of memory
 */
enum fsdp_status topology_read(struct topology **out, const char *root, struct fsdp_err *err);

/** The NUMA node of a PCI device; -1: not known. */
int topology_node_of_pci(const char *root, const char *pci);

#endif
