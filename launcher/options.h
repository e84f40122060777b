/*
 * The command line of fsdprun. One table of options serves the parser, --help, the manual page, shell
 * completion and --dry-run. Pure: what the parser knows of its surroundings comes in through struct
 * options_input.
 *
 *   - Names take dashes or underscores. A name may be cut short if no other option begins the same.
 *   - The words after a program belong to the program. The options after a job file are ours.
 *   - The command line wins over FSDPRUN_<NAME>, which wins over PET_<NAME>.
 *   - All of torchrun's options are here, and mean what they mean there (docs/torchrun-differences.md).
 */
#ifndef LAUNCHER_OPTIONS_H
#define LAUNCHER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <fsdp/status.h>

enum option_id {
    OPT_UNSET,
    OPT_NPROC_PER_NODE,
    OPT_NNODES,
    OPT_MAX_RESTARTS,
    OPT_SHUTDOWN_TIMEOUT,
    OPT_SIGNALS_TO_HANDLE,
    OPT_FORWARD_SIGNALS,
    OPT_SAVE_ON_SIGNAL,
    OPT_ROLE,
    OPT_VIRTUAL_LOCAL_RANK,
    OPT_NUMA_BINDING,
    OPT_STANDBY,
    OPT_HANG_TIMEOUT,
    OPT_STRAGGLER,
    OPT_PYTHON_STACKS,
    OPT_SNAPSHOT_MEMORY,
    OPT_SNAPSHOT_PERSIST,
    OPT_SET,
    OPT_DRY_RUN,
    OPT_MODULE,
    OPT_NO_PYTHON,
    OPT_RUN_PATH,
    OPT_STANDALONE,
    OPT_NODE_RANK,
    OPT_RDZV_BACKEND,
    OPT_RDZV_ENDPOINT,
    OPT_RDZV_ID,
    OPT_RDZV_CONF,
    OPT_ARBITER,
    OPT_MASTER_ADDR,
    OPT_MASTER_PORT,
    OPT_LOCAL_ADDR,
    OPT_SECRET_FILE,
    OPT_INSECURE,
    OPT_LOG_DIR,
    OPT_RUN_DIR,
    OPT_SUMMARY,
    OPT_REDIRECTS,
    OPT_TEE,
    OPT_LOCAL_RANKS_FILTER,
    OPT_DUPLICATE_STDOUT_FILTERS,
    OPT_DUPLICATE_STDERR_FILTERS,
    OPT_LOG_LINE_PREFIX_TEMPLATE,
    OPT_LOG_LIMIT,
    OPT_LOG_KEEP,
    OPT_PREFIX,
    OPT_DIRECT_OUTPUT,
    OPT_COLOR,
    OPT_NO_COLOR,
    OPT_QUIET,
    OPT_AGENT,
    OPT_DETACH,
    OPT_GPUS,
    OPT_MONITOR_INTERVAL,
    OPT_START_METHOD,
    OPT_EVENT_LOG_HANDLER,
    OPT_LOGS_SPECS,
    OPT_INSTALL_AS_TORCHRUN,
    OPT_UNINSTALL_AS_TORCHRUN,
    OPT_PRINT_COMPLETION,
    OPT_HELP,
    OPT_HELP_ALL,
    OPT_VERSION,
    OPT_COUNT
};

enum option_kind {
    OPTION_FLAG,     /* without a value; in the environment a whole number, 0 for off */
    OPTION_TEXT,     /* any text that is not empty */
    OPTION_BLANK,    /* any text; an empty one counts as not given */
    OPTION_COUNT,    /* a whole number from `low` to `high` */
    OPTION_REAL,     /* a number of at least 0; may have a fraction */
    OPTION_SIZE,     /* bytes: a whole number, alone or with K, M, G or T (powers of 1024) after it */
    OPTION_CHOICE,   /* one of `choices` */
    OPTION_PROCS,    /* a count, or the word for one: cpu, gpu, xpu, auto */
    OPTION_NODES,    /* a count, or MIN:MAX */
    OPTION_RESTARTS, /* a count, or N/SECONDS */
    OPTION_STREAMS,  /* 0 to 3, or RANK:N,RANK:N,... */
    OPTION_RANKS,    /* RANK,RANK,...; an empty text counts as not given */
    OPTION_PATTERNS, /* TEXT,TEXT,... with ",," for a comma */
    OPTION_SIGNALS,  /* NAME,NAME,... with or without SIG */
    OPTION_CONF,     /* KEY=VALUE,KEY=VALUE,... (launcher/rdzv_conf.h) */
    OPTION_SETTING,  /* section.key=value; may be given again, and all are kept */
};

/*
 * Whose option it is. A name that is cut short means one of torchrun's rather than one of ours, so that the
 * habits of its users keep their meaning.
 */
enum option_origin {
    OPTION_OURS,
    OPTION_TORCHRUN,       /* one of its thirty, or --help */
    OPTION_TORCHRUN_LATER, /* new in PyTorch 2.15 */
};

/* What a field of struct agent_config is, or (FIELD_GIVEN) that the option's own value is meant. */
enum field_kind {
    FIELD_NONE,    /* the end of a list of fields */
    FIELD_GIVEN,   /* no field: the value as it was given, else the default; flags as true or false */
    FIELD_IS_SET,  /* a pointer, shown as true or false */
    FIELD_INT,     /* int; a negative one is shown as null */
    FIELD_BYTES,   /* uint64_t */
    FIELD_SECONDS, /* int64_t of milliseconds */
    FIELD_BOOL,
    FIELD_TEXT,    /* const char *, or NULL */
    FIELD_TEXTS,   /* char *const *, zero-terminated, or NULL for none */
    FIELD_SIGNALS, /* uint64_t, bit s for signal s */
    FIELD_STREAMS, /* const unsigned char *, one per local rank; NULL: all 0 */
    FIELD_RANKS,   /* const unsigned char *, 1 or 0 per local rank; NULL: all 1 */
    FIELD_HOSTING, /* enum agent_hosting */
};

/* One line of --dry-run: `key` and the field at `offset` of struct agent_config. */
struct option_field {
    const char *key;
    enum field_kind kind;
    size_t offset;
};

enum { OPTION_MOST_FIELDS = 5 }; /* with the FIELD_NONE at the end */

struct option {
    enum option_id id;
    const char *name;
    char letter; /* 0: none */
    enum option_kind kind;
    const char *argument;
    int64_t low, high;          /* limits of a count */
    const char *const *choices; /* NULL at the end: all values of a choice, else values that shells offer */
    const char *instead;        /* what the refusal of another value says in place of the choices */
    enum option_origin from;
    bool pet;             /* PET_<NAME> is read too */
    bool no_env;          /* no variable is read, not even FSDPRUN_<NAME> */
    const char *also;     /* one more variable, which is read last */
    const char *called;   /* names that other launchers use, separated by '|', for "did you mean" */
    const char *brief;    /* the option's line on the short page; NULL: only the long page has it */
    const char *fallback; /* the default, as shown */
    const char *group, *help;
    /* what the option decides; none: it has no line in --dry-run */
    struct option_field fields[OPTION_MOST_FIELDS];
};

extern const struct option option_table[];
extern const size_t option_table_size;

enum { OPTION_ORIGIN_BYTES = 64, OPTION_MEANT_BYTES = 128 };

struct option_value {
    const char *text;                 /* borrowed from argv or the environment; NULL: not given */
    int64_t number;                   /* a count or size; MAX of MIN:MAX; for a flag 1 (on) or 0 */
    int64_t least;                    /* MIN of MIN:MAX, else the number */
    int64_t window_s;                 /* SECONDS of N/SECONDS, else 0 */
    char origin[OPTION_ORIGIN_BYTES]; /* where it was given: "--nnodes", "PET_NNODES" */
    bool is_weak;                     /* by options_default(): a key of the job file wins */
};

struct options {
    struct option_value of[OPT_COUNT];
    const char **sets; /* the values of --set, in the order given; the array is owned */
    size_t n_sets;
    const char *run_name; /* the default of a job's run.name; NULL: the job file's name */
    char *const *rest;    /* what is run, and its arguments; borrowed from argv */
    int n_rest;
    bool dashes;         /* "--" came before it: then a reserved word is a program */
    bool as_torchrun;    /* fsdprun was called by the name torchrun */
    const char *program; /* the name that our messages begin with: "fsdprun" or "torchrun" */
};

/* What the parser reads, and what it asks about its surroundings. */
struct options_input {
    int argc;
    char *const *argv;
    const char *(*get_env)(void *arg, const char *name);
    void *arg;  /* of get_env and count_devices */
    int n_cpus; /* CPUs that may be used here */
    /* Long options that the caller reads itself, NULL at the end: "did you mean" offers them. NULL: none. */
    const char *const *own;
    /**
     * Count the devices that a worker of this node would see. NULL: there are none.
     *   word      gpu, xpu, or auto for any kind
     *   one_each  each worker is shown one device only
     *   why       gets a clause that says why, where there are none
     */
    int (*count_devices)(void *arg, const char *word, bool one_each, char *why, size_t why_bytes);
};

/**
 * Parse the command line and the environment. --help, --help-all, --version, --print-completion and those
 * that change the link torchrun end the parsing where they stand.
 *   FSDP_ERR_CONFIG, FSDP_ERR_NOMEM  one line in `err` names the option as it was written. Nothing is left to
 *                                    free, and options->program is set.
 */
enum fsdp_status options_read(struct options *options, const struct options_input *input,
                              struct fsdp_err *err);

/**
 * Set an option that was not given, because of a variable that is not its own.
 *   origin  the variable; borrowed until the end of the call
 *   text    borrowed as long as the options are used
 *   FSDP_ERR_CONFIG  the option does not take `text`
 */
enum fsdp_status options_default(struct options *options, enum option_id id, const char *origin,
                                 const char *text, struct fsdp_err *err);

/** Free what options_read() allocated. Only options->program stays valid. */
void options_fini(struct options *options);

/** Return the row of the table. NULL for an id that has none. */
const struct option *option_find(enum option_id id);

/**
 * Check one value of an option.
 *   origin  where it was given: the line in `err` begins with it
 *   n_cpus  the number that the word cpu stands for
 *   value   gets the number of counts, sizes and flags; gpu, xpu and auto give 0, to be counted later
 *   FSDP_ERR_CONFIG  the option does not take `text`
 */
enum fsdp_status option_check(const struct option *option, const char *origin, const char *text, int n_cpus,
                              struct option_value *value, struct fsdp_err *err);

/** The text of a value as messages show it: "nothing" if it is empty. */
const char *option_text(const char *text);

/** Write the variable of an option: `prefix`, then NPROC_PER_NODE for nproc-per-node. Returns `out`. */
const char *option_env_name(const struct option *option, const char *prefix, char out[OPTION_ORIGIN_BYTES]);

/** Was the option given, on the command line or in the environment? A flag with 0 counts as not given. */
bool options_has(const struct options *options, enum option_id id);

/** Return the option's number, or `fallback` if it was not given. */
int64_t options_number(const struct options *options, enum option_id id, int64_t fallback);

/*
 * Values that are lists. Each function returns FSDP_ERR_CONFIG for a text that is no such list, and `err`
 * says in one line why.
 */

/**
 * Read the streams of each local rank (bit 0 stdout, bit 1 stderr) from "3" (all ranks) or "0:1,11:2".
 *   n_ranks  length of `out`; 0: only check the text
 */
enum fsdp_status options_streams(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err);

/**
 * Set out[r] to 1 for each local rank r in a text as "0,2,11", and to 0 for the others.
 *   n_ranks  length of `out`; 0: only check the text
 */
enum fsdp_status options_ranks(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err);

/**
 * Split a text at its commas: "a,b,,c" is "a" and "b,c", as two commas stand for one in a pattern. An empty
 * pattern is refused, because every line contains it.
 *   out  one block with the list, NULL at its end, to be freed by the caller; NULL: only check
 */
enum fsdp_status options_patterns(const char *text, char ***out, struct fsdp_err *err);

/**
 * Read names as "SIGTERM,INT" into a set, bit s for signal s. Signals that cannot be handled, and those of
 * job control, are refused.
 */
enum fsdp_status options_signals(const char *text, uint64_t *set, struct fsdp_err *err);

/**
 * Read HOST, HOST:PORT, [IPV6] or [IPV6]:PORT.
 *   host  gets the host without brackets, in `size` bytes
 *   port  gets the port, or `fallback` if the text has none
 */
enum fsdp_status options_endpoint(const char *text, char *host, size_t size, int fallback, int *port,
                                  struct fsdp_err *err);

/**
 * Guess which option a wrong name means.
 *   written, length  the name as written, without dashes; no long option begins with it
 *   out              gets the words after "did you mean": "--max-restarts", or "--set optimizer.lr=VALUE" for
 *                    a key of job files
 * Returns false when nothing is close.
 */
bool options_meant(const struct options *options, const struct options_input *input, const char *written,
                   size_t length, char out[OPTION_MEANT_BYTES]);

/**
 * Read a size of at least `low` bytes, such as 512M or 80g: a number of bytes, or of powers of 1024.
 * FSDP_ERR_CONFIG: it is none.
 */
enum fsdp_status options_size(const char *text, int64_t low, int64_t *out, struct fsdp_err *err);

/** Is `name` that of a job file: *.yaml or *.yml? */
bool options_names_job(const char *name);

/** Print usage and every option. `program` is the name that fsdprun was called by: fsdprun or torchrun. */
void options_print_help(FILE *out, const char *program);

/** Print usage and the options that most runs need. With what cmd_help() adds they fit 24 lines. */
void options_print_brief(FILE *out, const char *program);

/** Print the options as the manual page has them, in roff. */
void options_print_man(FILE *out);

#endif
