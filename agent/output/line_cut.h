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
#include <string.h>

/**
 * The end of the first line in bytes[0..n): *length is its size without what ends it (a carriage return before
 * a newline belongs to the line), *consumed its size with it. False: no line ends here yet; of these n bytes
 * `n_searched` need not be looked at again (a carriage return at the very end is not decided yet).
 */
bool line_end(const char *bytes, size_t n, size_t *length, size_t *consumed, size_t *n_searched);

/**
 * The lines of bytes[0..n) one after another, as line_end() finds them, with one search for carriage returns for all
 * of them. A plain struct on the caller's stack.
 */
struct line_scan {
    const char *at, *end;
    const char *carriage; /* the first carriage return from `at` on was searched for up to here */
    size_t n_searched; /* after line_scan_next() was false: as line_end() says it, of what begins at `at` */
};
void line_scan_init(struct line_scan *scan, const char *bytes, size_t n);
bool line_scan_slowly(struct line_scan *scan,
                      size_t *length); /* where a carriage return may end the line at `at` */

/** The next line, without its end, which `scan->at` is behind then. False: no further line ends here. */
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

/** The largest length <= n at which bytes[0..n) can be cut without splitting a UTF-8 character. */
size_t line_cut_length(const char *bytes, size_t n);

#endif
