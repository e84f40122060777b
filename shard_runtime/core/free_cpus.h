/*
 * How many CPUs have nothing to do. This is a hint for choosing a number of threads. It may change at any
 * moment.
 */
#ifndef CORE_FREE_CPUS_H
#define CORE_FREE_CPUS_H

/**
 * Returns the number of CPUs of the host on which no thread runs now; the caller's thread does not count. It
 * is at most the number of CPUs that this thread may run on. 0 if it is not known how many threads run.
 *   loadavg_path  "/proc/loadavg"; a test passes a file of its own
 */
int free_cpus(const char *loadavg_path);

#endif
