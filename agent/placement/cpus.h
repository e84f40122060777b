/*
 * The cores that this process may use: its affinity mask, and the CPU quota of its control groups.
 */
#ifndef AGENT_CPUS_H
#define AGENT_CPUS_H

#include "agent/os/cpu_mask.h"

/** The lesser of affinity mask and quota, in whole cores. At least 1. */
int cpus_available(void);

/** The CPUs of this process's affinity mask. Empty if the kernel does not give the mask. */
void cpus_allowed(struct cpu_mask *out);

/**
 * Whole cores that the control groups of this process allow (versions 1 and 2), at least 1. 0: there is no
 * limit.
 *   root  prefix of /proc and /sys; "" is this machine
 */
int cpus_quota(const char *root);

/**
 * Whole cores that the limit of one control group allows, at least 1. 0: it sets no limit.
 *   text  "max 100000" or "200000 100000" (cpu.max); quota and period in microseconds
 */
int cpus_of_quota(const char *text);

#endif
