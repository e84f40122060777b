#include "shard_runtime/shardfile/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- writing --- */

static bool reserve(struct json_text *text, size_t more)
{
    size_t capacity = text->capacity < 256 ? 256 : text->capacity;
    char *bytes;

    if (text->failed || more > SIZE_MAX / 4 - text->length) {
        text->failed = true;
        return false;
    }
    while (capacity < text->length + more + 1)
        capacity *= 2;
    if (capacity != text->capacity) {
        bytes = realloc(text->bytes, capacity);
        if (bytes == NULL) {
            text->failed = true;
            return false;
        }
        text->bytes = bytes;
        text->capacity = capacity;
    }
    return true;
}

void json_text_free(struct json_text *text)
{
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

void json_add(struct json_text *text, const char *format, ...)
{
    char small[256];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (n < 0) {
        text->failed = true;
    } else if ((size_t)n < sizeof small) {
        json_add_bytes(text, small, (size_t)n);
    } else if (reserve(text, (size_t)n)) {
        va_start(args, format);
        vsnprintf(text->bytes + text->length, (size_t)n + 1, format, args);
        va_end(args);
        text->length += (size_t)n;
    }
}

void json_add_string(struct json_text *text, const char *string)
{
    json_add_bytes(text, "\"", 1);
    for (; *string != '\0'; string++) {
        const unsigned char c = (unsigned char)*string;

        if (c == '"' || c == '\\')
            json_add(text, "\\%c", c);
        else if (c < 0x20)
            json_add(text, "\\u%04x", c);
        else
            json_add_bytes(text, string, 1);
    }
    json_add_bytes(text, "\"", 1);
}

/* --- reading --- */

void json_read_init(struct json_reader *json, char *text, size_t length)
{
    *json = (struct json_reader){ .text = text, .length = length };
}

bool json_refuse(struct json_reader *json, const char *problem)
{
    if (json->problem == NULL)
        json->problem = problem;
    return false;
}

/* The byte at the reading place, or -1 at the end and after a problem. */
static int peek(const struct json_reader *json)
{
    return json->problem != NULL || json->at >= json->length ? -1 : (unsigned char)json->text[json->at];
}

static void skip_space(struct json_reader *json)
{
    for (int c = peek(json); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = peek(json))
        json->at++;
}

static bool take(struct json_reader *json, char wanted)
{
    skip_space(json);
    if (peek(json) != wanted)
        return false;
    json->at++;
    return true;
}

static bool enter(struct json_reader *json, char bracket, const char *problem)
{
    if (!take(json, bracket))
        return json_refuse(json, problem);
    if (++json->depth > JSON_MAX_DEPTH)
        return json_refuse(json, "nested too deep");
    json->fresh = true;
    return true;
}

bool json_enter_object(struct json_reader *json)
{
    return enter(json, '{', "an object was expected");
}

bool json_enter_array(struct json_reader *json)
{
    return enter(json, '[', "an array was expected");
}

/* True when another item follows; false behind `bracket` or on a problem. */
static bool next_item(struct json_reader *json, char bracket)
{
    if (take(json, bracket)) {
        json->depth--;
        json->fresh = false; /* what we came back to has at least this item */
        return false;
    }
    if (json->problem != NULL)
        return false;
    if (!json->fresh && !take(json, ','))
        return json_refuse(json, "a comma or a closing bracket was expected");
    json->fresh = false;
    return true;
}

bool json_next_element(struct json_reader *json)
{
    return next_item(json, ']');
}

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four hexadecimal digits, or -1. */
static long read_unit(struct json_reader *json)
{
    long unit = 0;

    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(peek(json));

        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
        json->at++;
    }
    return unit;
}

/* The code point behind "\u", surrogate pairs joined, or -1. */
static long read_code_point(struct json_reader *json)
{
    long code = read_unit(json), low;

    if (code < 0xd800 || code > 0xdfff)
        return code;
    if (code > 0xdbff || peek(json) != '\\')
        return -1;
    json->at++;
    if (peek(json) != 'u')
        return -1;
    json->at++;
    low = read_unit(json);
    return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

/* UTF-8 of `code`; never longer than the escape that named it. */
static size_t put_utf8(char *to, long code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Length of the UTF-8 sequence at the reading place, 0 if it is none: no overlong forms, no surrogates. */
static size_t utf8_length(const struct json_reader *json)
{
    const unsigned char *s = (const unsigned char *)json->text + json->at;
    const size_t left = json->length - json->at;
    const size_t n = s[0] < 0x80                   ? 1
                     : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                     : (s[0] & 0xf0) == 0xe0       ? 3
                     : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                   : 0;

    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

static long read_escape(struct json_reader *json)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int c = peek(json);
    const char *found = c > 0 ? strchr(from, c) : NULL;

    json->at++;
    if (c == 'u')
        return read_code_point(json);
    return found == NULL ? -1 : to[found - from];
}

/* Walk a string; with `keep` it is unescaped in place and terminated. The first byte, or NULL. */
static char *walk_string(struct json_reader *json, bool keep)
{
    char *begin, *to;

    if (!take(json, '"')) {
        json_refuse(json, "a string was expected");
        return NULL;
    }
    begin = to = json->text + json->at;
    for (;;) {
        const int c = peek(json);
        size_t n;

        if (c < 0x20) { /* the end of the text as well */
            json_refuse(json, "a string that does not end, or with a control character in it");
            return NULL;
        }
        if (c == '"')
            break;
        if (c == '\\') {
            char utf8[4];
            long code;

            json->at++;
            code = read_escape(json);
            if (code <= 0) {
                json_refuse(json, "an escape that is none, or stands for a zero byte");
                return NULL;
            }
            n = put_utf8(utf8, code);
            if (keep)
                memcpy(to, utf8, n);
        } else {
            n = utf8_length(json);
            if (n == 0) {
                json_refuse(json, "not UTF-8");
                return NULL;
            }
            if (keep)
                memmove(to, json->text + json->at, n);
            json->at += n;
        }
        to += n;
    }
    if (keep)
        *to = '\0'; /* at the latest on the closing quote, which is done with */
    json->at++;
    return begin;
}

const char *json_string(struct json_reader *json)
{
    return walk_string(json, true);
}

/* A member's name and the colon behind it; NULL on failure. */
static const char *walk_name(struct json_reader *json, bool keep)
{
    const char *name = walk_string(json, keep);

    if (name != NULL && !take(json, ':')) {
        json_refuse(json, "a colon was expected");
        return NULL;
    }
    return name;
}

const char *json_next_member(struct json_reader *json)
{
    return next_item(json, '}') ? walk_name(json, true) : NULL;
}

bool json_u64(struct json_reader *json, uint64_t *out)
{
    uint64_t value = 0;
    int c;

    skip_space(json);
    c = peek(json);
    if (c < '0' || c > '9')
        return json_refuse(json, "a whole number was expected");
    json->at++;
    value = (uint64_t)(c - '0');
    for (c = peek(json); c >= '0' && c <= '9'; c = peek(json)) {
        if (value == 0)
            return json_refuse(json, "a number with a leading zero");
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(c - '0'), &value))
            return json_refuse(json, "a number that is too large");
        json->at++;
    }
    if (c == '.' || c == 'e' || c == 'E')
        return json_refuse(json, "a whole number was expected");
    *out = value;
    return true;
}

static bool skip_digits(struct json_reader *json)
{
    const size_t begin = json->at;

    for (int c = peek(json); c >= '0' && c <= '9'; c = peek(json))
        json->at++;
    return json->at > begin;
}

static bool skip_number(struct json_reader *json)
{
    if (peek(json) == '-')
        json->at++;
    if (peek(json) == '0')
        json->at++;
    else if (!skip_digits(json))
        return false;
    if (peek(json) == '.') {
        json->at++;
        if (!skip_digits(json))
            return false;
    }
    if (peek(json) == 'e' || peek(json) == 'E') {
        json->at++;
        if (peek(json) == '+' || peek(json) == '-')
            json->at++;
        if (!skip_digits(json))
            return false;
    }
    return true;
}

static bool skip_word(struct json_reader *json)
{
    static const char *const words[] = { "true", "false", "null" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);

        if (json->length - json->at >= n && memcmp(json->text + json->at, words[i], n) == 0) {
            json->at += n;
            return true;
        }
    }
    return false;
}

static bool skip_scalar(struct json_reader *json)
{
    skip_space(json);
    if (peek(json) == '"')
        return walk_string(json, false) != NULL;
    if (peek(json) >= 0 && (skip_word(json) || skip_number(json)))
        return true;
    return json_refuse(json, "a value was expected");
}

/*
 * Without recursion, so that a hostile text cannot use up the stack: `open` holds the brackets entered here.
 */
bool json_skip(struct json_reader *json)
{
    char open[JSON_MAX_DEPTH];
    int n_open = 0;

    do {
        int c;

        skip_space(json);
        c = peek(json);
        if (c == '{' || c == '[') {
            if (!(c == '{' ? json_enter_object(json) : json_enter_array(json)))
                return false; /* at the latest when it would not fit `open` */
            open[n_open++] = (char)c;
        } else if (!skip_scalar(json)) {
            return false;
        }
        while (n_open > 0) { /* to the next value, out of every bracket that ends here */
            const bool object = open[n_open - 1] == '{';

            if (next_item(json, object ? '}' : ']')) {
                if (object && walk_name(json, false) == NULL)
                    return false;
                break;
            }
            if (json->problem != NULL)
                return false;
            n_open--;
        }
    } while (n_open > 0);
    return json->problem == NULL;
}

bool json_raw_object(struct json_reader *json, const char **begin, size_t *length)
{
    size_t start;

    skip_space(json);
    if (peek(json) != '{')
        return json_refuse(json, "an object was expected");
    start = json->at;
    if (!json_skip(json))
        return false;
    *begin = json->text + start;
    *length = json->at - start;
    return true;
}

bool json_end(struct json_reader *json)
{
    skip_space(json);
    if (json->problem == NULL && json->at != json->length)
        json_refuse(json, "something stands behind the end");
    return json->problem == NULL;
}

bool json_is_object(const char *text, size_t length)
{
    /* json_skip() alone never writes, so that the constant text is safe. */
    struct json_reader json;
    const char *begin;
    size_t n;

    json_read_init(&json, (char *)(uintptr_t)text, length);
    return json_raw_object(&json, &begin, &n) && json_end(&json);
}
