/*
 * The only description of a job file's keys: section, type, range, default and help of each. All code that
 * needs keys reads this table: the YAML reader, --set, the JSON between launcher and workers, --help,
 * docs/config.md, the manual page and --dry-run.
 */
#ifndef JOB_SCHEMA_H
#define JOB_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

enum job_type {
    JOB_TYPE_UNSET,
    JOB_BOOL,
    JOB_COUNT,  /* uint64_t */
    JOB_NUMBER, /* double */
    JOB_PAIR,   /* double[2] */
    JOB_TEXT,   /* char * */
    JOB_WORD,   /* one of `choices`, stored as char * */
    JOB_CHOICE, /* one of `choices`, stored as an enum in the same order */
    JOB_NAMES,  /* a list of name patterns, stored as struct job_names * (rules.h) */
    JOB_RULES,  /* a list of maps, stored as struct job_rules * */
};

enum { JOB_CHOICE_NUMBER = 1000 }; /* the stored choice for a number k is JOB_CHOICE_NUMBER + k */
enum { JOB_MAX_KEYS = 96, JOB_KEY_PATH_BYTES = 64 };
#define JOB_NO_FIELD ((size_t)-1)

struct job_key {
    const char *section, *name;
    enum job_type type;
    size_t field;     /* offset in struct job; JOB_NO_FIELD if no code reads the key */
    double low, high; /* numbers: the allowed range; `high_open` excludes `high` itself */
    bool high_open;
    bool is_place;      /* text: a path that may also be "s3://bucket/prefix" */
    bool is_path;       /* text: an input file, relative to the job file that names it */
    bool is_name;       /* text: used as the name of a directory */
    bool is_number_too; /* choices: also accepts a whole number from low to high */
    /* Counts: the word for 0, if 0 itself may not be written. Text and lists: "null", which means none. */
    const char *zero;
    const char *choices; /* words separated by '|'; true, false and null have their YAML types */
    /*
     * Values that are planned but not supported yet. Words separated by '|': "*" means any, "<int>" a whole
     * number. For a number: every value but the default.
     */
    const char *later;
    const char *never; /* words that are refused for good; never_why gives the reason */
    const char *never_why;
    const char *fallback; /* default as written in a job file; NULL: the user must give the key */
    const char *example;  /* NULL: job_key_example() uses `fallback` */
    const char *help;     /* one line */
};

extern const struct job_key job_schema[];
extern const size_t job_schema_size;

struct job_section {
    const char *name, *help;
};
extern const struct job_section job_sections[];
extern const size_t job_sections_size;

/** Returns the key with this section and name, or NULL. */
const struct job_key *job_key_find(const char *section, const char *name);
/** Returns the key with the path "section.name", or NULL. */
const struct job_key *job_key_find_path(const char *path);
/** Returns the index of the key in job_schema. */
size_t job_key_index(const struct job_key *key);
/** Writes "section.name" to `out` and returns `out`. */
const char *job_key_path(const struct job_key *key, char out[JOB_KEY_PATH_BYTES]);
/** Returns a value of the key, for documents and messages. */
const char *job_key_example(const struct job_key *key);
/** Returns the section called `name`, or NULL. */
const struct job_section *job_section_find(const char *name);
/** Returns the section that begins with key number `index` of job_schema; NULL: it began before. */
const struct job_section *job_section_begun(size_t index);
/** Returns true if the key's value is a list: of names, or of rules. */
bool job_key_is_list(const struct job_key *key);
/**
 * Returns true if another value of this key can change the result of the whole run. The result depends on
 * data, model, optimizer, seed, data types, groups and `train`, except train.steps. The result does not
 * depend on the number of ranks, or on keys that change only speed, memory or records. model.preset returns
 * false, because it acts through other keys.
 */
bool job_key_decides(const struct job_key *key);

/**
 * Copies word number `index` of a list separated by '|' to `out`. Returns false after the end of the list.
 */
bool job_list_word(const char *list, int index, char out[JOB_KEY_PATH_BYTES]);
/** Returns the index of `word` in a list separated by '|', or -1. */
int job_list_index(const char *list, const char *word);
/** Writes the list "a|b|c" as "a, b, c", with `last` between the last two: ", " or " or ". */
void job_list_spell(const char *list, const char *last, char *out, size_t size);

#endif
