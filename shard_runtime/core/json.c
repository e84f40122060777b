#include "shard_runtime/core/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/utf8.h"

struct json_text json_text_fixed(char *buffer, size_t size)
{
    if (size > 0)
        buffer[0] = '\0';
    return (struct json_text){ .bytes = buffer, .capacity = size, .fixed = true, .failed = size == 0 };
}

/* Makes room for `more` bytes and a final zero. */
static bool reserve(struct json_text *text, size_t more)
{
    size_t end;

    if (!checked_add(text->length, more, &end) ||
        (end >= text->capacity && (text->fixed || !alloc_room(&text->bytes, &text->capacity, end, 1))))
        text->failed = true;
    return !text->failed;
}

void json_text_free(struct json_text *text)
{
    if (!text->fixed)
        free(text->bytes);
    *text = (struct json_text){ 0 };
}

void json_add_bytes(struct json_text *text, const char *bytes, size_t length)
{
    if (!reserve(text, length))
        return;
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

__attribute__((format(printf, 2, 0))) static void add_list(struct json_text *text, const char *format,
                                                           va_list args)
{
    va_list again;
    int n;

    va_copy(again, args);
    n = vsnprintf(NULL, 0, format, args);
    if (n < 0)
        text->failed = true;
    else if (reserve(text, (size_t)n))
        text->length += (size_t)vsnprintf(text->bytes + text->length, (size_t)n + 1, format, again);
    va_end(again);
}

void json_add(struct json_text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_list(text, format, args);
    va_end(args);
}

/*
 * Appends the first character of `string`, which has `length` bytes, escaped as JSON requires. Returns the
 * number of bytes of `string` consumed.
 */
static size_t add_escaped(struct json_text *text, const char *string, size_t length)
{
    static const char short_forms[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    const unsigned char byte = (unsigned char)string[0];
    const size_t n = utf8_length(string, length);

    for (size_t i = 0; short_forms[i] != '\0'; i += 2)
        if (short_forms[i] == string[0]) {
            json_add_bytes(text, (const char[]){ '\\', short_forms[i + 1] }, 2);
            return 1;
        }
    if (n == 0)
        json_add_bytes(text, UTF8_REPLACEMENT, sizeof UTF8_REPLACEMENT - 1);
    else if (byte < 0x20 || byte == 0x7f)
        json_add(text, "\\u%04x", byte);
    else
        json_add_bytes(text, string, n);
    return n == 0 ? 1 : n;
}

void json_add_string(struct json_text *text, const char *string)
{
    const size_t length = string == NULL ? 0 : strlen(string);

    if (string == NULL) {
        json_add(text, "null");
        return;
    }
    json_add_bytes(text, "\"", 1);
    for (size_t at = 0; at < length;)
        at += add_escaped(text, string + at, length - at);
    json_add_bytes(text, "\"", 1);
}

void json_next(struct json_text *text)
{
    if (text->length > 0 && strchr("{[ \n", text->bytes[text->length - 1]) == NULL)
        json_add_bytes(text, ", ", 2);
}

void json_key(struct json_text *text, const char *key)
{
    json_next(text);
    json_add_string(text, key);
    json_add_bytes(text, ": ", 2);
}

void json_field(struct json_text *text, const char *key, const char *format, ...)
{
    va_list args;

    json_key(text, key);
    va_start(args, format);
    add_list(text, format, args);
    va_end(args);
}

void json_field_string(struct json_text *text, const char *key, const char *string)
{
    json_key(text, key);
    json_add_string(text, string);
}

void json_field_real(struct json_text *text, const char *key, const char *format, double value)
{
    json_field(text, key, isfinite(value) ? format : "null", value);
}

void json_field_bool(struct json_text *text, const char *key, bool value)
{
    json_field(text, key, value ? "true" : "false");
}

void json_open(struct json_text *text, const char *key, char bracket)
{
    if (key != NULL)
        json_key(text, key);
    else
        json_next(text);
    json_add_bytes(text, &bracket, 1);
}

void json_close(struct json_text *text, char bracket)
{
    json_add_bytes(text, &bracket, 1);
}
