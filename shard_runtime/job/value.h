/*
 * One value of a job: read from YAML or JSON atoms by its key's type and range, kept in struct job, written
 * back as text. What YAML, --set and JSON accept is the same because they all pass through job_value_read().
 */
#ifndef JOB_VALUE_H
#define JOB_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/job/schema.h"

struct job;

enum job_atom_kind { ATOM_NULL, ATOM_BOOL, ATOM_INTEGER, ATOM_NUMBER, ATOM_TEXT };

/* A scalar with its type and nothing of its key yet. */
struct job_atom {
    enum job_atom_kind kind;
    bool flag;
    bool negative, too_large; /* integers: below zero; more than 64 bits */
    uint64_t count;           /* integers: the magnitude */
    double number;            /* integers and numbers */
    const char *text;         /* as written, for messages and text keys; borrowed */
};

struct job_value {
    bool flag;
    uint64_t count;
    double number[2];
    const char *text; /* text keys; borrowed */
    int choice;       /* words and choices: index among the key's */
    const void *list; /* names and rules; borrowed; NULL: none */
};

enum { JOB_VALUE_TEXT_BYTES = 64 };

/** Type a plain (unquoted) scalar by YAML 1.2's core schema; only true, false and null are words with a type.
 */
void job_atom_plain(struct job_atom *atom, const char *text);
void job_atom_text(struct job_atom *atom, const char *text);

/**
 * Make `atoms` (one, or a list of `n_atoms`) the value of `key`. Text in *out borrows from the atoms.
 * FSDP_ERR_CONFIG: wrong type or out of range; FSDP_ERR_UNSUPPORTED: known, not built. `why` says what is
 * wrong with the value, without naming the key.
 */
enum fsdp_status job_value_read(const struct job_key *key, const struct job_atom *atoms, size_t n_atoms,
                                bool is_list, struct job_value *out, struct fsdp_err *why);

/** The default. Returns false when the key has none. */
bool job_value_fallback(const struct job_key *key, struct job_value *out);

/** Put a value into its field (nothing for a key without one); text is copied. FSDP_ERR_NOMEM. */
enum fsdp_status job_value_store(const struct job_key *key, const struct job_value *value, struct job *job);
/** The value that stands in `job`; the default for a key without a field. Text is borrowed from `job`. */
void job_value_load(const struct job_key *key, const struct job *job, struct job_value *out);

/** Shortest text that reads back as `number` and shows that it is no integer: "600.0", "1.0e-08". */
const char *job_number_text(double number, char out[JOB_VALUE_TEXT_BYTES]);

/** An end of a range as people write it: "0", "1000000", "1e+30". */
const char *job_limit_text(double limit, char out[JOB_VALUE_TEXT_BYTES]);

/**
 * The value as it stands in YAML (`json` false) or JSON, quoted where it must be. Allocated; NULL when memory
 * is out.
 */
char *job_value_text(const struct job_key *key, const struct job_value *value, bool json);

#endif
