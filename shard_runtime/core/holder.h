/*
 * Who holds a lock, in words for a person: the text of a lock file.
 */
#ifndef CORE_HOLDER_H
#define CORE_HOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum { HOLDER_BYTES = 512 };

/** Write "pid 4242 on node7 since 2026-11-22T19:06:17Z\n" about this process; returns the length. */
size_t holder_words(char out[HOLDER_BYTES]);
/** False where `words` are not such a text, or are of a process of this host that has ended. */
bool holder_may_live(const char *words);

#endif
