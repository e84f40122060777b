#include "shard_runtime/shardfile/json_reader.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/utf8.h"

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

/* Returns the byte at the current position, or -1 at the end of the text and after a problem. */
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

/*
 * Returns true if another item follows. Returns false after reading the closing `bracket`, and on a problem.
 */
static bool next_item(struct json_reader *json, char bracket)
{
    if (take(json, bracket)) {
        json->depth--;
        json->fresh = false; /* the enclosing object or list contains at least this item */
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

/* Reads four hexadecimal digits; returns their value, or -1. */
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

/* Reads the code point after "\u", joining a surrogate pair. Returns -1 if it is not valid. */
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

/*
 * Writes the UTF-8 form of `code` and returns its length, which is never more than that of its escape
 * sequence.
 */
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

/*
 * Reads a string. With `keep` it unescapes the string in place and adds a zero byte. Returns its first byte,
 * or NULL.
 */
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

        if (c < 0x20) { /* also at the end of the text */
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
            n = utf8_length(json->text + json->at, json->length - json->at);
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
        *to = '\0'; /* overwrites at most the closing quote, which is no longer needed */
    json->at++;
    return begin;
}

const char *json_string(struct json_reader *json)
{
    return walk_string(json, true);
}

/* Reads a member's name and the colon after it; returns NULL on failure. */
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
 * Does not recurse, so a malicious text cannot exhaust the stack. `open` holds the brackets entered so far.
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
                return false; /* fails at the latest when `open` is full */
            open[n_open++] = (char)c;
        } else if (!skip_scalar(json)) {
            return false;
        }
        while (n_open > 0) { /* leave every bracket that ends here, up to the next value */
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

bool json_make_room(struct json_reader *json, void *list, size_t n, size_t size)
{
    void *array;

    if ((n & (n - 1)) != 0)
        return true; /* the capacity doubles: only at a power of two is it full */
    memcpy(&array, list, sizeof array);
    array = reallocarray(array, n == 0 ? 1 : n * 2, size);
    if (array == NULL)
        return json_refuse(json, "no memory");
    memcpy(list, &array, sizeof array);
    return true;
}

bool json_end(struct json_reader *json)
{
    skip_space(json);
    if (json->problem == NULL && json->at != json->length)
        json_refuse(json, "text follows the end");
    return json->problem == NULL;
}

bool json_is_object(const char *text, size_t length)
{
    /* The cast is safe: json_skip() does not modify the text. */
    struct json_reader json;
    const char *begin;
    size_t n;

    json_read_init(&json, (char *)(uintptr_t)text, length);
    return json_raw_object(&json, &begin, &n) && json_end(&json);
}
