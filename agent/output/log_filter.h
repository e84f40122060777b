/*
 * Which lines of a stream are kept a second time: those with any of some words in them (torchrun's duplicate
 * filters). Takes the stream in the pieces it comes in. Pure.
 *
 * Lines end as the console's do (line_cut.h). Of a line longer than LOG_FILTER_LINE_BYTES the first so many are
 * looked at and kept.
 */
#ifndef AGENT_LOG_FILTER_H
#define AGENT_LOG_FILTER_H

#include <stdbool.h>
#include <stddef.h>

enum { LOG_FILTER_LINE_BYTES = 65536 };

struct log_filter;

/** A line that matched: `length` bytes without its end, of a line of `whole` bytes. Borrowed for the call. */
typedef void log_filter_found(void *arg, const char *line, size_t length, size_t whole);

/** `words`: zero-terminated, at least one, borrowed until destroyed; an empty one is in every line. NULL: no memory. */
struct log_filter *log_filter_create(char *const *words, log_filter_found *found, void *arg);
void log_filter_destroy(struct log_filter *filter); /* NULL is a no-op */

/** The next bytes of the stream. */
void log_filter_feed(struct log_filter *filter, const char *bytes, size_t n);
/** There are no more: a last line without an end is one too. */
void log_filter_end(struct log_filter *filter);

#endif
