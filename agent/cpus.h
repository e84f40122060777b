/*
 * The cores this process may really use: its affinity mask, and the CPU quota of its control groups.
 */
#ifndef AGENT_CPUS_H
#define AGENT_CPUS_H

/** At least 1. */
int cpus_available(void);

/**
 * Whole cores that a control group's limit allows, at least 1; 0 when it sets none.
 *   text  "max 100000" or "200000 100000" (cpu.max); quota and period in microseconds
 */
int cpus_of_quota(const char *text);

#endif
