/*
 * The one description of a job file: every key with its section, type, range, default and help. The YAML
 * reader, --set, the JSON between launcher and workers, --help, docs/config.md, the manual page and --dry-run
 * all read this table; there is no second list of keys.
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
    JOB_WORD,   /* one of `choices`, kept as char * */
    JOB_CHOICE, /* one of `choices`, kept as an enum that counts them in this order */
    JOB_NAMES,  /* a list of names by pattern, kept as struct job_names * (rules.h) */
    JOB_RULES,  /* a list of maps, kept as struct job_rules * */
};

enum { JOB_CHOICE_NUMBER = 1000 }; /* what a number among choices begins at */
enum { JOB_MAX_KEYS = 96, JOB_KEY_PATH_BYTES = 64 };
#define JOB_NO_FIELD ((size_t)-1)

struct job_key {
    const char *section, *name;
    enum job_type type;
    size_t field;     /* offset in struct job; JOB_NO_FIELD while nothing reads the key */
    double low, high; /* numbers: the legal range; `high_open` leaves `high` itself out */
    bool high_open;
    bool is_path;       /* text: an input file, relative to the job file it stands in */
    bool is_name;       /* text: becomes the name of a directory */
    bool is_number_too; /* choices: a whole number from low to high as well, kept as JOB_CHOICE_NUMBER + it */
    const char *
        zero; /* counts: the word for 0, where 0 itself may not be written; text and lists: "null", for none */
    const char *choices; /* words parted by '|'; true, false and null are typed as YAML types them */
    const char *later; /* known, not built: words parted by '|', "*" any, "<int>" an integer; numbers: all but
                          the default */
    const char *never; /* words that will not be taken, and why */
    const char *never_why;
    const char *fallback; /* default as it would stand in a job file; NULL: the key must be given */
    const char *example;
    const char *help; /* one line */
};

extern const struct job_key job_schema[];
extern const size_t job_schema_size;

struct job_section {
    const char *name, *help;
};
extern const struct job_section job_sections[];
extern const size_t job_sections_size;

/** The key of this section and name (`length` bytes each), or NULL. */
const struct job_key *job_key_find(const char *section, const char *name);
/** As job_key_find() by "section.name". */
const struct job_key *job_key_find_path(const char *path);
/** Its place in the table. */
size_t job_key_index(const struct job_key *key);
/** "section.name" */
const char *job_key_path(const struct job_key *key, char out[JOB_KEY_PATH_BYTES]);
bool job_section_exists(const char *name);
/**
 * Does another value of this key give another result of the whole run? True for data, model, optimizer, seed,
 * types and `train` except train.steps. False for what changes speed, memory or records, for the number of ranks,
 * and for model.preset, whose effect is in other keys.
 */
bool job_key_decides(const struct job_key *key);

/** Word `index` of a list parted by '|', copied to `out`; false past the end. */
bool job_list_word(const char *list, int index, char out[JOB_KEY_PATH_BYTES]);
/** Index of `word` in such a list, or -1. */
int job_list_index(const char *list, const char *word);

#endif
