/*
 * Prints text: into memory at any length, wrapped, and as roff.
 */
#ifndef CORE_TEXT_H
#define CORE_TEXT_H

#include <stdio.h>

/**
 * Calls `print` with a stream and `subject`, and returns the printed text as a string. The caller frees the
 * string. Returns NULL if memory runs out.
 */
char *text_of(void (*print)(FILE *out, const void *subject), const void *subject);

/**
 * Prints `text`, wrapped at 100 columns. It begins at column `indent`, where the cursor is, and so do the
 * lines after the first.
 */
void text_wrap(FILE *out, const char *text, int indent);

/** Prints `text` as roff: a line must not begin with a dot or a quote, and a literal hyphen is \-. */
void text_roff(FILE *out, const char *text);

#endif
