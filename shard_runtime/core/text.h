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

enum { TEXT_COLUMNS = 80 }; /* of a page of help */

/**
 * Prints `text` and a newline, broken between words into lines of at most `columns`. A longer word stays
 * whole.
 *   begin   the column where the cursor is
 *   indent  the column where lines after the first begin
 */
void text_wrap(FILE *out, const char *text, int begin, int indent, int columns);

/**
 * Prints `text`, which is whole lines. Our own messages, which begin with "fsdp", are wrapped as by
 * text_wrap() with an indent of two columns. Other lines, such as the last ones of a rank, stay as they are.
 */
void text_wrap_messages(FILE *out, const char *text, int columns);

/**
 * Prints paragraphs, each filled to lines of TEXT_COLUMNS: in `text`, a newline is as a space. Lines that
 * begin with a space, and empty ones, stay as they are.
 */
void text_fill(FILE *out, const char *text);

/** Prints `text` as roff: a line must not begin with a dot or a quote, and a literal hyphen is \-. */
void text_roff(FILE *out, const char *text);

#endif
