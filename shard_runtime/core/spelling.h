/*
 * Names that were nearly spelled right: what "did you mean" rests on, for keys, options and subcommands alike. Pure.
 */
#ifndef CORE_SPELLING_H
#define CORE_SPELLING_H

#include <stdbool.h>
#include <stddef.h>

enum { SPELLING_MAX_BYTES = 64 }; /* longer names are close to nothing */

/** Edit distance of two names: letters added, left out or changed, and neighbours swapped, count one each. */
size_t spelling_distance(const char *a, const char *b);

/**
 * Is `name` close enough to `known` to be a misspelling of it (a third of the letters of `known` may be wrong, at
 * least one), and closer than *best? If so *best becomes its distance. Begin with *best = (size_t)-1.
 */
bool spelling_is_close(const char *name, const char *known, size_t *best);

#endif
