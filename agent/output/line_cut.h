/*
 * Where lines end in output that arrives in pieces. Pure.
 *
 * A line ends with a newline, or with a carriage return that is followed by neither a newline nor another
 * carriage return. Programs redraw their progress with such a carriage return. Without this rule the prefix
 * would stand before all of it and be overwritten.
 */
#ifndef AGENT_LINE_CUT_H
#define AGENT_LINE_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/**
 * Find the end of the first line in bytes[0..n).
 *   *length      its size without what ends it; a carriage return before a newline belongs to the line
 *   *consumed    its size with what ends it
 *   *n_searched  set only if no line ends here: this many of the bytes need not be searched again. A carriage
 *                return at the very end is undecided until the next byte is known.
 * Returns whether a line ends here.
 */
bool line_end(const char *bytes, size_t n, size_t *length, size_t *consumed, size_t *n_searched);

/**
 * An iterator over the lines of bytes[0..n), as line_end() finds them. All of them share one search for
 * carriage returns. A plain struct on the caller's stack.
 */
struct line_scan {
    const char *at, *end;
    /* no carriage return is between `at` and this place; `end`: none in all that is left */
    const char *carriage;
    /* after line_scan_next() has returned false: *n_searched of line_end(), counted from `at` */
    size_t n_searched;
};
void line_scan_init(struct line_scan *scan, const char *bytes, size_t n);

/** The part of line_scan_next() for a line that may end with a carriage return. */
bool line_scan_slowly(struct line_scan *scan, size_t *length);

/**
 * Set *line and *length to the next line without its end, and move scan->at to after it. Returns false, and
 * moves nothing, if no further line ends here.
 */
static inline bool line_scan_next(struct line_scan *scan, const char **line, size_t *length)
{
    const char *newline = memchr(scan->at, '\n', (size_t)(scan->end - scan->at));

    *line = scan->at;
    if (newline == NULL || scan->carriage < newline)
        return line_scan_slowly(scan, length);
    *length = (size_t)(newline - scan->at);
    scan->at = newline + 1;
    return true;
}

#endif
