/*
 * A message as rows of fields. Each row says which member of a C struct travels under which JSON key, and
 * which values are allowed there. The same rows encode a struct, decode it and refuse what does not fit, so
 * that a message has one description.
 *
 * On the wire a message is one JSON object that has exactly the keys of its rows.
 *
 * Pure: no sockets, no loop.
 */
#ifndef AGENT_FIELDS_H
#define AGENT_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

/* The C type of the member, and how its value is written. */
enum field_kind {
    FIELD_TEXT,  /* char[]: a string; refused if it does not fit with its zero */
    FIELD_INT,   /* int or an enum: a number */
    FIELD_WORD,  /* uint32_t: a number */
    FIELD_FLAG,  /* bool: true or false */
    FIELD_LONG,  /* int64_t or uint64_t: a string of decimal digits, because a JSON number is a double */
    FIELD_BYTES, /* unsigned char[], at most 64: a string of hexadecimal digits */
    FIELD_TAIL   /* struct errors_tail (agent/record/errors.h): a string, its lines separated by newlines */
};

struct field {
    const char *key;
    enum field_kind kind;
    size_t offset, size; /* of the member, in bytes */
    int64_t low, high;   /* the allowed values of FIELD_INT and FIELD_LONG, both ends included */
};

/*
 * A row for `member` of `type`: FIELD() allows every value of the member's type, FIELD_WITHIN() only values
 * from `low` to `high`.
 */
#define FIELD(type, kind, key, member) FIELD_WITHIN(type, kind, key, member, INT64_MIN, INT64_MAX)
#define FIELD_WITHIN(type, kind, key, member, low, high)                                                     \
    {                                                                                                        \
        key, FIELD_##kind, offsetof(type, member), sizeof(((type *)0)->member), low, high                    \
    }

/**
 * Encode a struct as JSON text.
 *
 *   fields  (n_fields) the rows of the message
 *   base    the struct that the rows describe
 *
 * Returns the text, which the caller frees, or NULL if there is no memory for it.
 */
char *fields_encode(const struct field *fields, size_t n_fields, const void *base);

/**
 * Decode JSON text into a struct. The text may come from anyone: it is read strictly.
 *
 *   fields  (n_fields) the rows of the message
 *   base    the struct to fill; members that no row describes stay as they are
 *   text    (n_bytes) the text, without a terminating zero
 *
 * Returns FSDP_OK, or FSDP_ERR_FORMAT with the key that is missing, unknown, of a wrong type, too long or out
 * of range. After an error the contents of `base` are undefined.
 */
enum fsdp_status fields_decode(const struct field *fields, size_t n_fields, void *base, const void *text,
                               size_t n_bytes, struct fsdp_err *err);

#endif
