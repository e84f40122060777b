/*
 * Reads Python pickles as data, and executes nothing. A pickle is a program for a stack machine: it may name
 * any function of any Python module and call it. This reader knows the operations that describe data. It
 * accepts the names of a list that the caller gives, and no others. A call of such a name is kept as an
 * object, with its arguments and its state, and the caller looks at what it expects to be there.
 *
 * Memory and time are linear in the length of the text. A value may be reached by several ways, and may even
 * contain itself: so callers follow it to fixed depths only.
 */
#ifndef SHARDFILE_PICKLE_H
#define SHARDFILE_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_REAL,
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,       /* keys and values in turn, as they were added: a key may occur twice */
    PICKLE_GLOBAL,     /* one of the names that the caller gave */
    PICKLE_OBJECT,     /* class or function, arguments, state */
    PICKLE_PERSISTENT, /* what the caller of Python's pickle resolves: one value describes it */
};

struct pickle_value {
    enum pickle_kind kind;
    union {
        int64_t number; /* of a bool, an int, or the place of a global in the caller's list */
        double real;
        const char *text;                  /* zero-terminated; may contain zero bytes too */
        const struct pickle_value **items; /* of an object three, of which the last may be NULL */
    };
    size_t n, room; /* items, or bytes of the text */
};

struct pickle {
    const struct pickle_value *root;
    struct pickle_block *blocks; /* memory of all values */
};

/**
 * Reads the pickle in bytes[0..length).
 *   globals  names that may occur, "torch Size": module and name, with a space between them
 *   FSDP_ERR_FORMAT  another name or operation, or no pickle; the message says which and where
 *   FSDP_ERR_NOMEM
 * After an error *out is empty.
 */
enum fsdp_status pickle_read(struct pickle *out, const char *bytes, size_t length, const char *const *globals,
                             size_t n_globals, struct fsdp_err *err);
/** Frees all values. */
void pickle_free(struct pickle *pickle);

/* All of these take NULL, and return NULL, false or -1 where there is no such thing. */

/** Item number `i` of a tuple or a list; of a dict, keys and values count. */
const struct pickle_value *pickle_item(const struct pickle_value *value, size_t i);
/** The last value of the key `name` in a dict. */
const struct pickle_value *pickle_get(const struct pickle_value *dict, const char *name);
/** The place in the caller's list of a global, or of an object's class. */
int pickle_global(const struct pickle_value *value);
/** The arguments and the state of an object. */
const struct pickle_value *pickle_arguments(const struct pickle_value *object);
const struct pickle_value *pickle_state(const struct pickle_value *object);
/** Is it a text, which is then without zero bytes? */
const char *pickle_text(const struct pickle_value *value);
/** Is it a whole number from 0 on? */
bool pickle_count(const struct pickle_value *value, uint64_t *out);

#endif
