/*
 * The last that a worker wrote: a ring of its newest bytes, and what they tell of its end: its last lines, and the
 * Python traceback among them. Pure.
 */
#ifndef AGENT_LAST_WORDS_H
#define AGENT_LAST_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/record/errors.h"

enum { LAST_WORDS_BYTES = 16384 };

struct last_words { /* all zero: nothing was written yet */
    uint64_t n;     /* bytes so far; the newest LAST_WORDS_BYTES of them are kept */
    char ring[LAST_WORDS_BYTES];
};

void last_words_add(struct last_words *words, const char *bytes, size_t n);

/** The kept bytes, oldest first, into `out` (LAST_WORDS_BYTES); returns how many they are. */
size_t last_words_copy(const struct last_words *words, char *out);

/**
 * What the last (n) `bytes` of a stream tell: detail->tail always; with `uncaught` (it ended as Python does after an
 * exception that nobody caught) also the traceback of that exception and its message, where they are the last that was
 * said (agent/record/traceback.h). What `detail` has from an error file stays.
 *   cut  older bytes are missing in front of these
 */
void last_words_tell(struct errors_detail *detail, const char *bytes, size_t n, bool cut, bool uncaught);

#endif
