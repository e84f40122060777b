/*
 * The private memory of this process: RssAnon + RssShmem of /proc/self/status. Mapped files (the data, the
 * libraries) do not count, because the kernel can drop their pages.
 */
#ifndef CORE_PROCESS_MEMORY_H
#define CORE_PROCESS_MEMORY_H

#include <stdint.h>

/** Returns the current number of bytes, or 0 if /proc is not available. */
uint64_t process_memory_now(void);

/** Returns the same sum for a text in the form of /proc/PID/status. A missing line counts as 0. */
uint64_t process_memory_of_status(const char *text);

#endif
