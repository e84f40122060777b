/*
 * Text into JSON. Whatever bytes come in (a worker may print anything), what comes out is valid: bytes that are
 * no UTF-8 (overlong forms and surrogates included) become U+FFFD, control bytes are escaped. Pure.
 */
#ifndef AGENT_JSON_TEXT_H
#define AGENT_JSON_TEXT_H

#include <stddef.h>
#include <stdio.h>

/** Length of the valid UTF-8 sequence that begins at `bytes` (1 to 4), or 0 where there is none. */
size_t json_utf8_length(const char *bytes, size_t n_bytes);

/**
 * `length` bytes of `text` as a JSON string, quotes included, with a final zero. Returns its length without the
 * zero, or 0 when it does not fit in `size` bytes (`out` is then an empty string, if it has room for one).
 */
size_t json_quote(char *out, size_t size, const char *text, size_t length);

/** The same to a stream; NULL is written as null. */
void json_put_text(FILE *file, const char *text);

/**
 * Copy `length` bytes of `text` with every byte that is no UTF-8 replaced by U+FFFD. Returns a string to be freed
 * (its length in *out_length), NULL when memory ran out.
 */
char *json_clean_copy(const char *text, size_t length, size_t *out_length);

#endif
