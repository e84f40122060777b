/*
 * The command line of fsdprun. One table of options serves the parser, --help, the manual page, shell
 * completion and --dry-run. Pure: the parser gets what it must know about the machine in struct
 * options_input.
 *
 *   - Names may have dashes or underscores. A name may be shortened if no other option begins the same.
 *   - The words after a program belong to that program. The options after a job file are fsdprun's.
 *   - The command line wins over FSDPRUN_<NAME>, which wins over PET_<NAME>.
 *   - All of torchrun's options exist, with the same meaning (docs/torchrun-differences.md).
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
    OPTION_FLAG,     /* has no value; its variable has a whole number, 0 for off */
    OPTION_TEXT,     /* any text that is not empty */
    OPTION_BLANK,    /* any text; an empty one means that the option is not given */
    OPTION_COUNT,    /* a whole number from `low` to `high` */
    OPTION_REAL,     /* a number of at least 0, with or without a fraction */
    OPTION_SIZE,     /* bytes: a whole number, or one followed by K, M, G or T (powers of 1024) */
    OPTION_CHOICE,   /* one of `choices` */
    OPTION_PROCS,    /* a count, or the word for one: cpu, gpu, xpu, auto */
    OPTION_NODES,    /* a count, or MIN:MAX */
    OPTION_RESTARTS, /* a count, or N/SECONDS */
    OPTION_STREAMS,  /* 0 to 3, or RANK:N,RANK:N,... */
    OPTION_RANKS,    /* RANK,RANK,...; an empty text means that the option is not given */
    OPTION_PATTERNS, /* TEXT,TEXT,... with ",," for a comma inside a text */
    OPTION_SIGNALS,  /* NAME,NAME,... each with or without SIG */
    OPTION_CONF,     /* KEY=VALUE,KEY=VALUE,... (launcher/rdzv_conf.h) */
    OPTION_SETTING,  /* section.key=value; the option may be repeated, and all are kept */
};

/*
 * Where an option comes from. If a shortened name fits an option of torchrun and one of ours, it means
 * torchrun's. So it keeps its meaning for users of torchrun.
 */
enum option_origin {
    OPTION_OURS,
    OPTION_TORCHRUN,       /* one of torchrun's thirty options, or --help */
    OPTION_TORCHRUN_LATER, /* an option that is new in PyTorch 2.15 */
};

/*
 * The type of a field of struct agent_config, for printing it. With FIELD_GIVEN the option's own value is
 * printed instead.
 */
enum field_kind {
    FIELD_NONE,    /* the end of a list of fields */
    FIELD_GIVEN,   /* no field: the option's value as given, else its default; flags as true or false */
    FIELD_IS_SET,  /* a pointer, shown as true or false */
    FIELD_INT,     /* int; a negative one is shown as null */
    FIELD_BYTES,   /* uint64_t */
    FIELD_SECONDS, /* int64_t of milliseconds */
    FIELD_BOOL,
    FIELD_TEXT,    /* const char *, or NULL */
    FIELD_TEXTS,   /* char *const *, terminated by NULL, or NULL for none */
    FIELD_SIGNALS, /* uint64_t, bit s for signal s */
    FIELD_STREAMS, /* const unsigned char *, one per local rank; NULL: all 0 */
    FIELD_RANKS,   /* const unsigned char *, 1 or 0 per local rank; NULL: all 1 */
    FIELD_HOSTING, /* enum agent_hosting */
};

/* One line of --dry-run: it shows `key` and the field at `offset` in struct agent_config. */
struct option_field {
    const char *key;
    enum field_kind kind;
    size_t offset;
};

enum { OPTION_MOST_FIELDS = 5 }; /* including the FIELD_NONE at the end */

struct option {
    enum option_id id;
    const char *name;
    char letter; /* 0: none */
    enum option_kind kind;
    const char *argument;
    int64_t low, high; /* limits of a count */
    /* ends with NULL: all values of OPTION_CHOICE; for other kinds, values that shells offer */
    const char *const *choices;
    const char *instead; /* text of the message that refuses another value; NULL: the choices are listed */
    enum option_origin from;
    bool pet;             /* PET_<NAME> is read too */
    bool no_env;          /* no variable is read, not even FSDPRUN_<NAME> */
    const char *also;     /* one more variable, read after the others */
    const char *called;   /* names of this option in other launchers, separated by '|', for "did you mean" */
    const char *brief;    /* line of the option on the page of --help; NULL: only --help-all has it */
    const char *fallback; /* the default, as pages show it */
    const char *group, *help;
    /* Fields that this option sets. If there are none, --dry-run prints no line for it. */
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
    char origin[OPTION_ORIGIN_BYTES]; /* where it was given, such as "--nnodes" or "PET_NNODES" */
    bool is_weak;                     /* set by options_default(): a key of the job file wins over it */
};

struct options {
    struct option_value of[OPT_COUNT];
    const char **sets; /* (n_sets) the values of --set in the given order; the array is owned */
    size_t n_sets;
    const char *run_name; /* default of a job's run.name; NULL: the default is the name of the job file */
    char *const *rest;    /* what to run, and its arguments; borrowed from argv */
    int n_rest;
    bool dashes;         /* "--" came before it: a reserved word is then a program */
    bool as_torchrun;    /* fsdprun was called by the name torchrun */
    const char *program; /* the name that our messages begin with: "fsdprun" or "torchrun" */
};

/* What the parser reads, and how it asks about this machine. */
struct options_input {
    int argc;
    char *const *argv;
    const char *(*get_env)(void *arg, const char *name);
    void *arg;  /* passed to get_env and count_devices */
    int n_cpus; /* CPUs that this process may use */
    /*
     * Long options that the caller reads itself, terminated by NULL, for "did you mean". NULL: there are
     * none.
     */
    const char *const *own;
    /**
     * Returns how many devices a worker of this node would see. The pointer may be NULL: there are no
     * devices.
     *   word      gpu, xpu, or auto for any kind
     *   one_each  each worker sees only one device
     *   why       receives the reason if there are none
     */
    int (*count_devices)(void *arg, const char *word, bool one_each, char *why, size_t why_bytes);
};

/**
 * Parses the command line and the environment. It stops at --help, --help-all, --version, --print-completion
 * and the options that change the link torchrun, and reads nothing after them.
 *   FSDP_ERR_CONFIG, FSDP_ERR_NOMEM  one line in `err` names the option as the user wrote it. Nothing is left
 *                                    to free, and options->program is set.
 */
enum fsdp_status options_read(struct options *options, const struct options_input *input,
                              struct fsdp_err *err);

/**
 * Sets an option that was not given, to a value that another program's variable implies.
 *   origin  name of that variable; copied
 *   text    the value; borrowed as long as the options are used
 *   FSDP_ERR_CONFIG  the option does not take `text`
 */
enum fsdp_status options_default(struct options *options, enum option_id id, const char *origin,
                                 const char *text, struct fsdp_err *err);

/** Frees what options_read() allocated. Only options->program stays valid. */
void options_fini(struct options *options);

/** Returns the row of the option table for `id`, or NULL if there is none. */
const struct option *option_find(enum option_id id);

/**
 * Checks one value of an option.
 *   origin  where the value was given; the line in `err` begins with it
 *   n_cpus  the number that the word cpu stands for
 *   value   receives the number, for options that have one; 0 for gpu, xpu and auto, which are counted later
 *   FSDP_ERR_CONFIG  the option does not take `text`
 */
enum fsdp_status option_check(const struct option *option, const char *origin, const char *text, int n_cpus,
                              struct option_value *value, struct fsdp_err *err);

/** Returns the text of a value as messages show it: "nothing" if it is empty. */
const char *option_text(const char *text);

/**
 * Writes the name of an option's variable: `prefix`, then for example NPROC_PER_NODE for nproc-per-node.
 * Returns `out`.
 */
const char *option_env_name(const struct option *option, const char *prefix, char out[OPTION_ORIGIN_BYTES]);

/** Was the option given, on the command line or in the environment? A flag with the value 0 was not. */
bool options_has(const struct options *options, enum option_id id);

/** Returns the option's number, or `fallback` if it was not given. */
int64_t options_number(const struct options *options, enum option_id id, int64_t fallback);

/*
 * Readers of values that are lists. If the text has not the right form, they return FSDP_ERR_CONFIG, and
 * `err` says why in one line.
 */

/**
 * Reads which streams are meant for each local rank: bit 0 stdout, bit 1 stderr. The text is one number for
 * all ranks ("3"), or a list ("0:1,11:2"); ranks that are not in the list get 0.
 *   n_ranks  length of `out`; 0: only check the text
 */
enum fsdp_status options_streams(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err);

/**
 * Reads a list of local ranks, such as "0,2,11". Sets out[r] to 1 for each rank in it, and to 0 for the
 * others.
 *   n_ranks  length of `out`; 0: only check the text
 */
enum fsdp_status options_ranks(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err);

/**
 * Splits a text at its commas. Two commas stand for one comma inside a pattern, so "a,b,,c" gives "a" and
 * "b,c". An empty pattern is refused, because every line contains it.
 *   out  receives an array that ends with NULL, in one block that the caller frees; NULL: only check the text
 */
enum fsdp_status options_patterns(const char *text, char ***out, struct fsdp_err *err);

/**
 * Reads names of signals, such as "SIGTERM,INT", into a set in which bit s stands for signal s. It refuses
 * signals that cannot be handled, and those of job control.
 */
enum fsdp_status options_signals(const char *text, uint64_t *set, struct fsdp_err *err);

/**
 * Reads HOST, HOST:PORT, [IPV6] or [IPV6]:PORT.
 *   host  (size) receives the host, without brackets
 *   port  receives the port, or `fallback` if the text has none
 */
enum fsdp_status options_endpoint(const char *text, char *host, size_t size, int fallback, int *port,
                                  struct fsdp_err *err);

/**
 * Guesses which option the user meant by a name that is none.
 *   written, length  the name as written, without dashes; no long option begins with it
 *   out              receives the words after "did you mean": "--max-restarts", or "--set optimizer.lr=VALUE"
 *                    for a key of job files
 * Returns false if no option or key is close.
 */
bool options_meant(const struct options *options, const struct options_input *input, const char *written,
                   size_t length, char out[OPTION_MEANT_BYTES]);

/**
 * Reads a size of at least `low` bytes: a number of bytes, or one with a unit (a power of 1024), such as 512M
 * or 80g. FSDP_ERR_CONFIG: the text is no such size.
 */
enum fsdp_status options_size(const char *text, int64_t low, int64_t *out, struct fsdp_err *err);

/** Is `name` the name of a job file, *.yaml or *.yml? */
bool options_names_job(const char *name);

/** Prints the usage and every option. `program` is the name that the user called: fsdprun or torchrun. */
void options_print_help(FILE *out, const char *program);

/**
 * Prints the usage and the options that most runs need. With what cmd_help() adds, the page has 24 lines at
 * most.
 */
void options_print_brief(FILE *out, const char *program);

/** Prints the options for the manual page, in roff. */
void options_print_man(FILE *out);

#endif
