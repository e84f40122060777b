/*
 * A text of any length, printed into memory.
 */
#ifndef CORE_TEXT_H
#define CORE_TEXT_H

#include <stdio.h>

/** What `print` puts into `out`, as a string to be freed; NULL: out of memory. */
char *text_of(void (*print)(FILE *out, const void *subject), const void *subject);

#endif
