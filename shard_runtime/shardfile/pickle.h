/*
 * Reads Python pickles as data, and executes nothing. A pickle is a program for a stack machine: it may name
 * any function of any Python module and call it. This reader accepts only the operations that describe data,
 * and only the names in a list that its caller gives. Where the pickle calls such a name, the reader makes an
 * object that has the name, the arguments and the state. The caller then looks for the objects that it
 * expects.
 *
 * Memory and time are linear in the length of the pickle. A value may be an item of several others, and even
 * of itself. So callers follow items only to a fixed depth.
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
    PICKLE_GLOBAL,     /* a name: its index in the caller's list */
    PICKLE_OBJECT,     /* items: the class or function, its arguments, and the state or NULL */
    PICKLE_PERSISTENT, /* a reference to data outside the pickle; its only item describes it */
};

struct pickle_value {
    enum pickle_kind kind;
    union {
        int64_t number; /* value of a bool or an int, or the index of a global in the caller's list */
        double real;
        const char *text;                  /* ends with a zero byte; may contain zero bytes before that */
        const struct pickle_value **items; /* (n); an object has three, of which the last may be NULL */
    };
    size_t n, room; /* n: number of items, or of bytes of the text; room: allocated items */
};

struct pickle {
    const struct pickle_value *root;
    struct pickle_block *blocks; /* memory of all values */
};

/**
 * Reads the pickle in bytes[0..length).
 *   globals  names that may occur, such as "torch Size": module and name, with a space between them
 *   FSDP_ERR_FORMAT  it is no pickle, or has another name or operation; the message says which and where
 *   FSDP_ERR_NOMEM
 * After an error *out is empty.
 */
enum fsdp_status pickle_read(struct pickle *out, const char *bytes, size_t length, const char *const *globals,
                             size_t n_globals, struct fsdp_err *err);
/** Frees all values. */
void pickle_free(struct pickle *pickle);

/*
 * Functions that look at values. Their argument may be NULL. They return NULL, false or -1 if the value is of
 * another kind or has no such part.
 */

/** Returns item number `i` of a tuple, list or dict. In a dict, keys and values are counted. */
const struct pickle_value *pickle_item(const struct pickle_value *value, size_t i);
/** Returns the value that was last added for the key `name` of a dict. */
const struct pickle_value *pickle_get(const struct pickle_value *dict, const char *name);
/** Returns the index in the caller's list of a global, or of the class of an object. */
int pickle_global(const struct pickle_value *value);
/** Return the arguments, or the state, of an object. */
const struct pickle_value *pickle_arguments(const struct pickle_value *object);
const struct pickle_value *pickle_state(const struct pickle_value *object);
/** Returns the text, if it contains no zero byte. */
const char *pickle_text(const struct pickle_value *value);
/** Returns true and the number, if the value is a whole number that is not negative. */
bool pickle_count(const struct pickle_value *value, uint64_t *out);

#endif
