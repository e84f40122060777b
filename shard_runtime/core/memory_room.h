/*
 * How much more memory this process may use: what the host has available, and what the limits of its control
 * groups leave.
 */
#ifndef CORE_MEMORY_ROOM_H
#define CORE_MEMORY_ROOM_H

#include <stdint.h>

/**
 * Returns the number of bytes; UINT64_MAX if it cannot be found out. Page cache that the kernel would drop
 * counts as free.
 *   root  "" for the files of this host; a test has files of its own below another one
 */
uint64_t memory_room(const char *root);

#endif
