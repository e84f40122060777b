/*
 * Prints text of any length into memory.
 */
#ifndef CORE_TEXT_H
#define CORE_TEXT_H

#include <stdio.h>

/**
 * Calls `print` with a stream and `subject`, and returns the printed text as a string. The caller frees the
 * string. Returns NULL if memory runs out.
 */
char *text_of(void (*print)(FILE *out, const void *subject), const void *subject);

#endif
