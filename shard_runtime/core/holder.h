/*
 * The text of a lock file: it tells a person which process holds the lock.
 */
#ifndef CORE_HOLDER_H
#define CORE_HOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum { HOLDER_BYTES = 512 };

/**
 * Writes the text of a lock file that this process holds, "pid 4242 on node7 since 2026-11-22T19:06:17Z\n".
 * Returns its length.
 */
size_t holder_words(char out[HOLDER_BYTES]);
/**
 * Returns false if `words` are not the text of a lock file, or if they name a process of this host that has
 * ended. Returns true if the process may still exist, on this host or another one.
 */
bool holder_may_live(const char *words);

#endif
