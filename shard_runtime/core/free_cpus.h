/*
 * How many CPUs have nothing to do. It is a hint for how many threads a piece of work gets, never a promise:
 * it may be another number a moment later.
 */
#ifndef CORE_FREE_CPUS_H
#define CORE_FREE_CPUS_H

/**
 * Returns the CPUs of the host on which no thread runs now, the caller's left out, and at most those that
 * this thread may run on. 0 if nothing says how many run. loadavg_path  "/proc/loadavg"; a test has a file of
 * its own
 */
int free_cpus(const char *loadavg_path);

#endif
