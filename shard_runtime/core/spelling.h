/*
 * Recognises names that are nearly spelled right, for "did you mean" in messages about keys, options and
 * subcommands. Pure functions.
 */
#ifndef CORE_SPELLING_H
#define CORE_SPELLING_H

#include <stdbool.h>
#include <stddef.h>

enum { SPELLING_MAX_BYTES = 64 }; /* longer names match nothing */
enum { SPELLING_HINT_BYTES = 2 * SPELLING_MAX_BYTES };

/**
 * Returns true if `name` may be a misspelling of `known` and is closer than *best, which then becomes its
 * distance. At most a third of the letters of `known` may be wrong; one wrong letter is always allowed.
 * Callers start with *best = (size_t)-1.
 */
bool spelling_is_close(const char *name, const char *known, size_t *best);

/** Writes "; did you mean NEAR?", or nothing if `near` is NULL, and returns `out`. */
const char *spelling_hint(const char *near, char out[SPELLING_HINT_BYTES]);

#endif
