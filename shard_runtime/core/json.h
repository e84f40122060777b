/*
 * Writes JSON, and reads it with cJSON.
 *
 * The writer appends to a `struct json_text`, which grows on the heap or uses a buffer of the caller. The
 * first failure (no memory, or no room in the caller's buffer) sets `failed`. Every later call then does
 * nothing, so one check at the end is enough:
 *
 *     struct json_text text = { 0 };
 *     json_open(&text, NULL, '{');
 *     json_field(&text, "rank", "%d", rank);
 *     json_field_string(&text, "host", host);
 *     json_close(&text, '}');
 *     if (text.failed) ... else use text.bytes, text.length
 *     json_text_free(&text);
 *
 * This gives {"rank": 3, "host": "a"}. The writer puts ", " between members and between elements. It omits
 * the separator if the text is empty or ends in an opening bracket, a space or a newline. So a caller may
 * write its own separator, such as ",\n  ".
 *
 * To read, call json_parse_object() and then cJSON's own functions. cJSON stores each number as a double and
 * keeps members that occur twice. Code that cannot accept this uses the strict reader,
 * shardfile/json_reader.h.
 */
#ifndef CORE_JSON_H
#define CORE_JSON_H

#include <stdbool.h>
#include <stddef.h>

/** Text under construction. Initialise it with { 0 } to grow on the heap, or with json_text_fixed(). */
struct json_text {
    char *bytes; /* NULL until something is added; then zero-terminated */
    size_t length, capacity;
    bool fixed;  /* `bytes` belongs to the caller and is neither grown nor freed */
    bool failed; /* true once something did not fit; `bytes` is then incomplete */
};

/**
 * Returns an empty text that uses the caller's `buffer` of `size` bytes. One byte is reserved for the final
 * zero.
 */
struct json_text json_text_fixed(char *buffer, size_t size);

/** Frees the text's memory, unless it is the caller's buffer, and makes the text empty. */
void json_text_free(struct json_text *text);

/** Appends the formatted text without escaping. The caller ensures that the result is JSON. */
void json_add(struct json_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Appends `length` bytes without escaping. */
void json_add_bytes(struct json_text *text, const char *bytes, size_t length);

/**
 * Appends a zero-terminated string as a quoted JSON string, or null if `string` is NULL. Escapes control
 * characters and replaces each byte that is not UTF-8 by U+FFFD. So the result is valid JSON for any bytes.
 */
void json_add_string(struct json_text *text, const char *string);

/** Appends ", " if a separator is needed here (see above). Call it before an element of a list. */
void json_next(struct json_text *text);

/** Appends a separator if needed, then `key` as a JSON string and ": ". The caller appends the value next. */
void json_key(struct json_text *text, const char *key);

/** Appends a member whose value is the formatted text: a number, true, false, null or other JSON. */
void json_field(struct json_text *text, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Appends a member whose value is a string, or null if `string` is NULL. */
void json_field_string(struct json_text *text, const char *key, const char *string);

/**
 * Appends a member with the number `value`, formatted by `format`. A value that is not finite is written as
 * null.
 */
void json_field_real(struct json_text *text, const char *key, const char *format, double value)
    __attribute__((format(printf, 3, 0)));

/** Appends a member with the value true or false. */
void json_field_bool(struct json_text *text, const char *key, bool value);

/**
 * Appends the opening `bracket` of an object or a list. The object or list is the value of the member `key`,
 * or a list element if `key` is NULL.
 */
void json_open(struct json_text *text, const char *key, char bracket);

/** Appends the closing `bracket`. */
void json_close(struct json_text *text, char bracket);

struct cJSON;

/**
 * Parses `length` bytes, which must be one JSON object, followed only by white space or zero bytes. Returns
 * the object, which the caller releases with cJSON_Delete(). Returns NULL if the text is anything else or
 * memory ran out.
 */
struct cJSON *json_parse_object(const char *text, size_t length);

#endif
