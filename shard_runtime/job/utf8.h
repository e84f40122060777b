/*
 * Is it UTF-8? RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#ifndef JOB_UTF8_H
#define JOB_UTF8_H

#include <stddef.h>

/** Offset of the first byte that is no UTF-8, or `length`. */
size_t utf8_prefix(const char *text, size_t length);

#endif
