/*
 * What this process holds in memory of its own: RssAnon + RssShmem of /proc/self/status. Mapped files (the
 * data, the libraries) are left out: the kernel drops them when it needs to.
 */
#ifndef CORE_PROCESS_MEMORY_H
#define CORE_PROCESS_MEMORY_H

#include <stdint.h>

/** Bytes now; 0 where /proc is not there. */
uint64_t process_memory_now(void);

/** The same of a text as /proc/PID/status has it: the sum of the two lines, 0 for one that is missing. */
uint64_t process_memory_of_status(const char *text);

#endif
