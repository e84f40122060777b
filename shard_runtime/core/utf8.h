/*
 * UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
 * The functions keep no state; any thread may call them.
 */
#ifndef CORE_UTF8_H
#define CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/** U+FFFD, which replaces a byte that is not UTF-8: three bytes. */
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

/**
 * Returns the length in bytes (1 to 4) of the character that begins at `bytes`. Returns 0 if no valid
 * character begins there, or if it does not end within `n_bytes`.
 */
size_t utf8_length(const char *bytes, size_t n_bytes);

/** Returns the offset of the first byte that is not UTF-8, or `length` if all of `text` is valid. */
size_t utf8_prefix(const char *text, size_t length);

/** Returns true if all of the string `text` is UTF-8. */
bool utf8_is_valid(const char *text);

/**
 * Returns the largest length <= n at which `bytes` can be cut without splitting a character. If the bytes
 * before `n` are not UTF-8, returns `n`.
 */
size_t utf8_cut(const char *bytes, size_t n);

/**
 * Returns how many columns of a terminal a character takes. 0: it combines with the one before it. 2: it is
 * wide (East Asian, emoji). Otherwise 1.
 *   length  of the character in bytes, as utf8_length() returned it
 */
int utf8_columns(const char *character, size_t length);

/**
 * Copies `length` bytes of `text` and replaces every byte that is not UTF-8 by U+FFFD. Returns a
 * zero-terminated string, which the caller frees, and stores its length in *out_length. Returns NULL if
 * memory runs out; then *out_length is not set.
 */
char *utf8_clean_copy(const char *text, size_t length, size_t *out_length);

#endif
