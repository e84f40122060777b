/*
 * The last bytes that a worker wrote, in a ring that keeps the newest ones. They say how the worker ended:
 * its last lines, and a Python traceback in them. Pure.
 */
#ifndef AGENT_LAST_WORDS_H
#define AGENT_LAST_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/record/errors.h"

enum { LAST_WORDS_BYTES = 16384 };

/** The ring. All zero: nothing was written yet. */
struct last_words {
    uint64_t n; /* bytes that were written to the ring so far; it keeps the newest LAST_WORDS_BYTES */
    char ring[LAST_WORDS_BYTES];
};

/** Add the next `n` bytes of the stream. */
void last_words_add(struct last_words *words, const char *bytes, size_t n);

/** Copy the kept bytes, oldest first, to `out` (LAST_WORDS_BYTES). Returns their number. */
size_t last_words_copy(const struct last_words *words, char *out);

/**
 * Fill `detail` from the last `n` bytes of a stream:
 *   - detail->tail always receives the last lines.
 *   - If `uncaught` is set, and detail has no error file, detail also receives the traceback and the message
 *     of the exception that ended the program. That must be the last thing written
 *     (agent/record/traceback.h).
 *
 *   cut       older bytes are missing before these
 *   uncaught  the worker ended as Python does after an exception that was not caught
 */
void last_words_tell(struct errors_detail *detail, const char *bytes, size_t n, bool cut, bool uncaught);

#endif
