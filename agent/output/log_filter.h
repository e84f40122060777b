/*
 * Selects the lines of a stream that are kept a second time: those that contain one of several words
 * (torchrun's duplicate filters). The stream may arrive in any pieces. Pure.
 *
 * Lines end as on the console (line_cut.h). Only the first LOG_FILTER_LINE_BYTES of a longer line are
 * searched and kept.
 */
#ifndef AGENT_LOG_FILTER_H
#define AGENT_LOG_FILTER_H

#include <stddef.h>

enum { LOG_FILTER_LINE_BYTES = 65536 };

struct log_filter;

/**
 * Called for a line that matched.
 *   line    (length) bytes without the line's end, at most LOG_FILTER_LINE_BYTES; borrowed for the call
 *   whole   the size of the whole line
 */
typedef void log_filter_found(void *arg, const char *line, size_t length, size_t whole);

/**
 * Create a filter.
 *   words  NULL-terminated list of at least one word; borrowed until log_filter_destroy(); "" is in every
 *          line
 *   arg    passed to `found`
 * Returns NULL if there is no memory.
 */
struct log_filter *log_filter_create(char *const *words, log_filter_found *found, void *arg);
void log_filter_destroy(struct log_filter *filter); /* NULL is a no-op */

/** Take the next bytes of the stream; `found` is called for each matching line that ends in them. */
void log_filter_feed(struct log_filter *filter, const char *bytes, size_t n);

/** The stream has ended: a last line without a newline is a line, too. */
void log_filter_end(struct log_filter *filter);

#endif
