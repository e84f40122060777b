/*
 * A strict JSON reader that works in place, for the headers and manifests of checkpoints.
 *
 * It exists in addition to cJSON (core/json.h) because a checkpoint needs what cJSON does not do. The test
 * json_reader/cjson_takes_what_a_checkpoint_must_not_have shows three faults of cJSON. It rounds whole
 * numbers above 2^53, but a seed has 64 bits. It accepts bytes that are not UTF-8. If an object has two
 * members of the same name, it silently returns the first.
 *
 * The reader walks the text once and copies nothing. It unescapes a string in place and terminates it with a
 * zero byte, so names point into the caller's buffer. It accepts JSON of RFC 8259 and nothing more, nested at
 * most JSON_MAX_DEPTH deep. After the first problem every later call fails and every loop ends, so one check
 * at the end is enough:
 *
 *     json_read_init(&json, text, length);
 *     json_enter_object(&json);
 *     while ((key = json_next_member(&json)) != NULL) ... json_string(&json), json_skip(&json), ...
 *     if (!json_end(&json)) ... json.problem, json.at
 */
#ifndef SHARDFILE_JSON_READER_H
#define SHARDFILE_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_MAX_DEPTH = 32 };

struct json_reader {
    char *text;
    size_t length, at;
    const char *problem; /* NULL until the first problem; `at` is then its offset */
    int depth;
    bool fresh; /* true directly after an opening bracket: no comma precedes the next item */
};

/**
 * Starts reading `text`, which has `length` bytes and need not be zero-terminated. Reading modifies the text.
 */
void json_read_init(struct json_reader *json, char *text, size_t length);

/** Enters the object that starts here. Records a problem and returns false if none starts here. */
bool json_enter_object(struct json_reader *json);

/**
 * Returns the next member's name; the caller reads its value next. After the last member, leaves the object
 * and returns NULL.
 */
const char *json_next_member(struct json_reader *json);

/** Enters the list that starts here. Records a problem and returns false if none starts here. */
bool json_enter_array(struct json_reader *json);

/**
 * Returns true if the caller can read another element. After the last element, leaves the list and returns
 * false.
 */
bool json_next_element(struct json_reader *json);

/**
 * Reads a string. Returns its bytes, unescaped in place and zero-terminated, or NULL if no valid string
 * starts here.
 */
const char *json_string(struct json_reader *json);

/** Reads a whole number from 0 to 2^64 - 1, without fraction or exponent. Sets *out only on success. */
bool json_u64(struct json_reader *json, uint64_t *out);

/** Skips one value of any kind, and checks its syntax. Does not modify the text. */
bool json_skip(struct json_reader *json);

/** Skips one object. *begin and *length receive its text, which is not modified and not zero-terminated. */
bool json_raw_object(struct json_reader *json, const char **begin, size_t *length);

/**
 * Makes room for element number `n` of a list that grows by one element at a time. `list` is the address of
 * the pointer to its elements, which have `size` bytes each. The elements may move. If memory runs out, it
 * records that as the reader's problem, leaves the list unchanged and returns false.
 */
bool json_make_room(struct json_reader *json, void *list, size_t n, size_t size);

/**
 * Records `problem`, unless an earlier one is recorded. The text must outlive the reader. Always returns
 * false.
 */
bool json_refuse(struct json_reader *json, const char *problem);

/**
 * Returns true if only white space is left and no problem was recorded. Otherwise records a problem and
 * returns false.
 */
bool json_end(struct json_reader *json);

/** Returns true if `text` is exactly one JSON object. Does not modify the text. */
bool json_is_object(const char *text, size_t length);

#endif
