/*
 * JSON for the two headers of a checkpoint: a text that grows, and a strict reader that works in place.
 *
 * The reader walks the text once and copies nothing: a string is unescaped where it stands and terminated
 * with a zero byte, so names point into the caller's buffer. It takes JSON of RFC 8259 and nothing more:
 * UTF-8 only, no zero byte in a string, whole numbers without exponent where a number is read, at most
 * JSON_MAX_DEPTH deep. The first problem sticks: every later call fails, loops end, and one check at the end
 * is enough.
 *
 *     json_read_init(&json, text, length);
 *     json_enter_object(&json);
 *     while ((key = json_next_member(&json)) != NULL) ... json_string(&json), json_skip(&json), ...
 *     if (!json_end(&json)) ... json.problem, json.at
 */
#ifndef SHARDFILE_JSON_H
#define SHARDFILE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Text under construction: zero-initialise it. Running out of memory sticks in `failed`. */
struct json_text {
    char *bytes; /* zero-terminated once anything was added */
    size_t length, capacity;
    bool failed;
};

void json_text_free(struct json_text *text);
void json_add(struct json_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void json_add_bytes(struct json_text *text, const char *bytes, size_t length);
/** `string` in quotes, escaped. */
void json_add_string(struct json_text *text, const char *string);

enum { JSON_MAX_DEPTH = 32 };

struct json_reader {
    char *text;
    size_t length, at;
    const char *problem; /* NULL while all is well; `at` is then where it was found */
    int depth;
    bool fresh; /* just behind an opening bracket: no comma comes before the next item */
};

/** `text` is changed by reading and has room for `length` bytes; it need not be terminated. */
void json_read_init(struct json_reader *json, char *text, size_t length);

bool json_enter_object(struct json_reader *json);
/** The next member's name, its value to be read next; NULL behind the last one (which leaves the object). */
const char *json_next_member(struct json_reader *json);
bool json_enter_array(struct json_reader *json);
/** True when an element is to be read next; false behind the last one (which leaves the array). */
bool json_next_element(struct json_reader *json);

/** A string's bytes in place; NULL on failure. */
const char *json_string(struct json_reader *json);
/** A whole number 0 .. 2^64 - 1 written plainly. */
bool json_u64(struct json_reader *json, uint64_t *out);
/** Step over one value of any kind, checking it. */
bool json_skip(struct json_reader *json);
/** Step over one object and say where its text stands: not terminated, not changed. */
bool json_raw_object(struct json_reader *json, const char **begin, size_t *length);
/** Record a problem of meaning at the place last read; always false. `problem` must outlive the reader. */
bool json_refuse(struct json_reader *json, const char *problem);
/** True when nothing but white space is left and nothing was wrong. */
bool json_end(struct json_reader *json);

/** True when `text` is one JSON object and nothing else. */
bool json_is_object(const char *text, size_t length);

#endif
