/*
 * Shared by the files of errors.h. errors.c makes the JSON and the line of a report. errors_detail.c reads
 * what a worker left, and writes the account of it.
 */
#ifndef AGENT_ERRORS_IMPL_H
#define AGENT_ERRORS_IMPL_H

#include "agent/record/errors.h"

/** A zero-terminated text in the caller's buffer of `size` bytes. What does not fit is cut off. */
struct cut_text {
    char *bytes;
    size_t size, length;
};

/** Append what the printf-like `format` gives, as far as it fits. */
void cut_add(struct cut_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
