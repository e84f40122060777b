/*
 * How many CPUs have nothing to do. This is a hint for choosing a number of threads. It may change at any
 * moment.
 */
#ifndef CORE_FREE_CPUS_H
#define CORE_FREE_CPUS_H

/**
 * Returns the CPUs of the host on which no thread runs now, the caller's left out, and at most those that
 * this thread may run on. 0 if it is not known how many run. loadavg_path  "/proc/loadavg"; a test has a file
 *                                                                          of
 * its own
 */
int free_cpus(const char *loadavg_path);

#endif
