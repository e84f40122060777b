/*
 * Bytes as text: base64 of RFC 4648, with padding, as JSON of protocol buffers has it.
 *
 * Pure.
 */
#ifndef AGENT_BASE64_H
#define AGENT_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Letters of n bytes, with the final zero. */
#define BASE64_TEXT_BYTES(n) (((n) + 2) / 3 * 4 + 1)

/** Write the text of bytes[0..n) and a final zero into `out`, which has BASE64_TEXT_BYTES(n). */
void base64_encode(char *out, const void *bytes, size_t n);

/**
 * Decode all of `text` into `out`, at most `capacity` bytes; *n receives how many. Returns false if the text
 * is not base64 in the one form that base64_encode() writes, or has more bytes than that.
 */
bool base64_decode(void *out, size_t capacity, size_t *n, const char *text);

#endif
