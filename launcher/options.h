/*
 * The command line of fsdprun: one table of options that the parser, --help and the manual page read. Pure:
 * what the parser knows of its surroundings comes in through struct options_input.
 *
 * Names take dashes or underscores and may be cut where no other begins the same. What follows a program is
 * the program's; what follows a job file is ours. The command line wins over FSDPRUN_<NAME>, that over
 * PET_<NAME>.
 */
#ifndef LAUNCHER_OPTIONS_H
#define LAUNCHER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <fsdp/status.h>

enum option_id {
    OPT_LATER, /* known, not built: refused wherever it appears */
    OPT_NPROC_PER_NODE,
    OPT_NNODES,
    OPT_NODE_RANK,
    OPT_MAX_RESTARTS,
    OPT_SHUTDOWN_TIMEOUT,
    OPT_SAVE_ON_SIGNAL,
    OPT_SET,
    OPT_DRY_RUN,
    OPT_NO_PYTHON,
    OPT_MODULE,
    OPT_RDZV_ENDPOINT,
    OPT_RDZV_ID,
    OPT_MASTER_ADDR,
    OPT_MASTER_PORT,
    OPT_SECRET_FILE,
    OPT_INSECURE,
    OPT_LOG_DIR,
    OPT_REDIRECTS,
    OPT_TEE,
    OPT_PREFIX,
    OPT_COLOR,
    OPT_NO_COLOR,
    OPT_QUIET,
    OPT_AGENT,
    OPT_DETACH,
    OPT_HELP,
    OPT_VERSION,
    OPT_COUNT
};

enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_COUNT,   /* a whole number from `low` to `high` */
    OPTION_PROCS,   /* a count, or "cpu": the CPUs that may be used */
    OPTION_NODES,   /* a count, or N:N */
    OPTION_STREAMS, /* 0 to 3, or RANK:N,RANK:N,... */
    OPTION_SETTING, /* section.key=value, kept all of them */
};

struct option {
    enum option_id id;
    const char *name;
    char letter; /* 0: none */
    enum option_kind kind;
    const char *argument;
    int64_t low, high;
    bool pet;             /* PET_<NAME> is read */
    bool no_env;          /* not even FSDPRUN_<NAME> is */
    const char *also;     /* another variable, read last */
    const char *fallback; /* the default, as shown */
    const char *group, *help;
};

extern const struct option option_table[];
extern const size_t option_table_size;

enum { OPTION_ORIGIN_BYTES = 64 };

struct option_value {
    const char *text;                 /* NULL: not given. Flags: "1". Borrowed from argv or the environment */
    int64_t number;                   /* counts, checked */
    char origin[OPTION_ORIGIN_BYTES]; /* "--nnodes", "PET_NNODES" */
};

struct options {
    struct option_value of[OPT_COUNT];
    const char **sets; /* in the order given; the array is owned */
    size_t n_sets;
    char *const *rest; /* what is run and its arguments; borrowed from argv */
    int n_rest;
    bool dashes; /* "--" stood in front of it: a reserved word is a program */
};

struct options_input {
    int argc;
    char *const *argv;
    const char *(*get_env)(void *arg, const char *name);
    void *arg;
    int n_cpus; /* that may be used here */
};

/**
 * Parse. --help and --version end the parsing where they stand. On failure `err` has one line that names the
 * option as it was written; status FSDP_ERR_CONFIG (bad usage) or FSDP_ERR_UNSUPPORTED.
 */
enum fsdp_status options_read(struct options *options, const struct options_input *input,
                              struct fsdp_err *err);
void options_fini(struct options *options);

const struct option *option_find(enum option_id id);
/**
 * Is `text` a value for this option? Counts go to *number. `err` has a line that begins with `origin`.
 */
enum fsdp_status option_check(const struct option *option, const char *origin, const char *text, int n_cpus,
                              int64_t *number, struct fsdp_err *err);

/** FSDPRUN_NPROC_PER_NODE, PET_NPROC_PER_NODE of nproc-per-node. */
const char *option_env_name(const struct option *option, const char *prefix, char out[OPTION_ORIGIN_BYTES]);

/** Was it given, on the command line or in the environment? Flags: and not switched off by 0. */
bool options_has(const struct options *options, enum option_id id);
/** Its number, or `fallback` when it was not given. */
int64_t options_number(const struct options *options, enum option_id id, int64_t fallback);

/**
 * The streams that STREAMS ("3", "0:1,1:2"; bit 0 stdout, bit 1 stderr) gives each of `n_ranks` local ranks.
 * FSDP_ERR_CONFIG: it is none, or names a rank that is not there.
 */
enum fsdp_status options_streams(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err);

/** HOST, HOST:PORT, [V6] or [V6]:PORT. `host` of size bytes; *port: `fallback` when there is none. */
enum fsdp_status options_endpoint(const char *text, char *host, size_t size, int fallback, int *port,
                                  struct fsdp_err *err);

/** Is it a job file by its name: *.yaml or *.yml? */
bool options_names_job(const char *name);

void options_print_help(FILE *out);
/** The options as the manual page writes them. */
void options_print_man(FILE *out);

#endif
