/*
 * Where lines end in output that arrives in pieces. Pure.
 *
 * A line ends with a newline, or with a carriage return that neither newline nor carriage return follows: programs
 * redraw their progress that way, and a prefix put before the whole of it would be overwritten.
 */
#ifndef AGENT_LINE_CUT_H
#define AGENT_LINE_CUT_H

#include <stdbool.h>
#include <stddef.h>

/**
 * The end of the first line in bytes[0..n): *length is its size without what ends it (a carriage return before
 * a newline belongs to the line), *consumed its size with it. False: no line ends here yet; of these n bytes
 * `n_searched` need not be looked at again (a carriage return at the very end is not decided yet).
 */
bool line_end(const char *bytes, size_t n, size_t *length, size_t *consumed, size_t *n_searched);

/** The largest length <= n at which bytes[0..n) can be cut without splitting a UTF-8 character. */
size_t line_cut_length(const char *bytes, size_t n);

#endif
