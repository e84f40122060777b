/*
 * One value of a job. job_value_read() reads a value from YAML or JSON atoms by the type and range of its
 * key. job_value_store() puts it into struct job, and job_value_text() writes it back as text. YAML, --set
 * and JSON accept the same values because all three use job_value_read().
 */
#ifndef JOB_VALUE_H
#define JOB_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/core/json.h"
#include "shard_runtime/job/schema.h"

struct job;

enum job_atom_kind { ATOM_NULL, ATOM_BOOL, ATOM_INTEGER, ATOM_NUMBER, ATOM_TEXT };

/* A scalar with its type, before it is interpreted for a key. */
struct job_atom {
    enum job_atom_kind kind;
    bool flag;
    bool negative, too_large; /* integers: below zero; does not fit 64 bits */
    uint64_t count;           /* integers: the absolute value */
    double number;            /* integers and numbers */
    const char *text;         /* the text as written, for messages and text keys; borrowed */
};

struct job_value {
    bool flag;
    uint64_t count;
    double number[2];
    const char *text; /* of text keys; borrowed */
    int choice; /* for a key that takes a word or a choice: the index of the value in the key's `choices` */
    const void *list; /* names and rules; borrowed; NULL: none */
};

enum { JOB_VALUE_TEXT_BYTES = 64 };

/**
 * Sets *atom to a plain (unquoted) scalar, with its type by the core schema of YAML 1.2. The only words that
 * are not of type text are true, false, null, ~ and the empty text.
 */
void job_atom_plain(struct job_atom *atom, const char *text);
/** Makes *atom the text `text`, as a quoted scalar is. */
void job_atom_text(struct job_atom *atom, const char *text);

/**
 * Converts `atoms` (one atom, or a list of `n_atoms`) to a value of `key`. Text in *out is borrowed from the
 * atoms. Returns FSDP_ERR_CONFIG for a wrong type or range, and FSDP_ERR_UNSUPPORTED for a value that is
 * planned but not supported yet. `why` describes the problem without the key's name.
 */
enum fsdp_status job_value_read(const struct job_key *key, const struct job_atom *atoms, size_t n_atoms,
                                bool is_list, struct job_value *out, struct fsdp_err *why);

/** Sets *out to the default of `key`. Returns false if the key has none. */
bool job_value_fallback(const struct job_key *key, struct job_value *out);

/**
 * Stores a value in the key's field of `job`, with a copy of its text or list. Does nothing for a key without
 * a field. The only error is FSDP_ERR_NOMEM.
 */
enum fsdp_status job_value_store(const struct job_key *key, const struct job_value *value, struct job *job);
/**
 * Sets *out to the key's value in `job`, or to the default if the key has no field. Text and lists are
 * borrowed from `job`.
 */
void job_value_load(const struct job_key *key, const struct job *job, struct job_value *out);

/**
 * Writes the shortest text that reads back as `number` and is recognisably not an integer: "600.0",
 * "1.0e-08". Returns `out`.
 */
const char *job_number_text(double number, char out[JOB_VALUE_TEXT_BYTES]);

/** Writes one end of a range as people write it: "0", "1000000", "1e+30". Returns `out`. */
const char *job_limit_text(double limit, char out[JOB_VALUE_TEXT_BYTES]);

/**
 * Appends `value` to `out` as JSON (`json` true) or YAML, in quotes where necessary. Quoted text has the same
 * escapes in both languages. Sets out->failed if `value` is a choice that `key` does not have.
 */
void job_value_text(const struct job_key *key, const struct job_value *value, bool json,
                    struct json_text *out);

#endif
