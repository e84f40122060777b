/*
 * The cores this process may really use: its affinity mask, and the CPU quota of its control groups.
 */
#ifndef AGENT_CPUS_H
#define AGENT_CPUS_H

#include "agent/os/cpu_mask.h"

/** Both together. At least 1. */
int cpus_available(void);

/** The affinity mask. Where the kernel tells none: the empty set. */
void cpus_allowed(struct cpu_mask *out);

/**
 * Whole cores that the control groups of this process allow, versions 1 and 2, at least 1; 0 when none sets a limit.
 *   root  put before /proc and /sys; "" is this machine
 */
int cpus_quota(const char *root);

/**
 * Whole cores that a control group's limit allows, at least 1; 0 when it sets none.
 *   text  "max 100000" or "200000 100000" (cpu.max); quota and period in microseconds
 */
int cpus_of_quota(const char *text);

#endif
