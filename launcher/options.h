/*
 * The command line of fsdprun: one table of options that the parser, --help and the manual page read. Pure:
 * what the parser knows of its surroundings comes in through struct options_input.
 *
 * Names take dashes or underscores and may be cut where no other begins the same. What follows a program is
 * the program's; what follows a job file is ours. The command line wins over FSDPRUN_<NAME>, that over
 * PET_<NAME>. All of torchrun's are here, and mean what they mean there (docs/torchrun-differences.md).
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
    OPT_MASTER_ADDR,
    OPT_MASTER_PORT,
    OPT_LOCAL_ADDR,
    OPT_SECRET_FILE,
    OPT_INSECURE,
    OPT_LOG_DIR,
    OPT_RUN_DIR,
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
    OPT_MONITOR_INTERVAL,
    OPT_START_METHOD,
    OPT_EVENT_LOG_HANDLER,
    OPT_LOGS_SPECS,
    OPT_PRINT_COMPLETION,
    OPT_HELP,
    OPT_HELP_ALL,
    OPT_VERSION,
    OPT_COUNT
};

enum option_kind {
    OPTION_FLAG,     /* in the environment a whole number, 0 for off */
    OPTION_TEXT,     /* anything but nothing */
    OPTION_BLANK,    /* anything; nothing is as if it were not given */
    OPTION_COUNT,    /* a whole number from `low` to `high` */
    OPTION_REAL,     /* a number, not negative, perhaps with a fraction */
    OPTION_SIZE,     /* bytes: a whole number, perhaps with K, M, G or T (powers of 1024) behind it */
    OPTION_CHOICE,   /* one of `choices` */
    OPTION_PROCS,    /* a count, or the word for one: cpu, gpu, xpu, auto */
    OPTION_NODES,    /* a count, or MIN:MAX */
    OPTION_STREAMS,  /* 0 to 3, or RANK:N,RANK:N,... */
    OPTION_RANKS,    /* RANK,RANK,...; nothing is as if it were not given */
    OPTION_PATTERNS, /* TEXT,TEXT,... with ",," for a comma */
    OPTION_SIGNALS,  /* NAME,NAME,... with or without SIG */
    OPTION_CONF,     /* KEY=VALUE,KEY=VALUE,... (launcher/rdzv_conf.h) */
    OPTION_SETTING,  /* section.key=value, kept all of them */
};

/* Whose it is. A name cut short means torchrun's before ours: what its users type stays what they mean. */
enum option_origin {
    OPTION_OURS,
    OPTION_TORCHRUN,       /* one of its thirty, or --help */
    OPTION_TORCHRUN_LATER, /* came to it with PyTorch 2.15 */
};

struct option {
    enum option_id id;
    const char *name;
    char letter; /* 0: none */
    enum option_kind kind;
    const char *argument;
    int64_t low, high;
    const char *const *choices; /* of a choice all, else what shells offer; NULL at the end */
    const char *instead;        /* what is said of any other, in place of the choices */
    enum option_origin from;
    bool pet;             /* PET_<NAME> is read */
    bool no_env;          /* not even FSDPRUN_<NAME> is */
    const char *also;     /* another variable, read last */
    const char *called;   /* what other launchers call it, parted by '|': only to point here */
    const char *brief;    /* its line on the short page; NULL: it is on the long one alone */
    const char *fallback; /* the default, as shown */
    const char *group, *help;
};

extern const struct option option_table[];
extern const size_t option_table_size;

enum { OPTION_ORIGIN_BYTES = 64, OPTION_MEANT_BYTES = 128 };

struct option_value {
    const char *text;                 /* NULL: not given. Borrowed from argv or the environment */
    int64_t number;                   /* counts and sizes, checked; of MIN:MAX it is MAX; flags: on or off */
    int64_t least;                    /* MIN of MIN:MAX, else the number */
    char origin[OPTION_ORIGIN_BYTES]; /* "--nnodes", "PET_NNODES" */
};

struct options {
    struct option_value of[OPT_COUNT];
    const char **sets; /* in the order given; the array is owned */
    size_t n_sets;
    char *const *rest; /* what is run and its arguments; borrowed from argv */
    int n_rest;
    bool dashes;         /* "--" stood in front of it: a reserved word is a program */
    bool as_torchrun;    /* fsdprun was called by that name */
    const char *program; /* so it calls itself in what it prints */
};

struct options_input {
    int argc;
    char *const *argv;
    const char *(*get_env)(void *arg, const char *name);
    void *arg;
    int n_cpus; /* that may be used here */
    const char *const *own; /* NULL, or long options that the caller reads itself, NULL at the end: may be meant */
    /**
     * How many devices a worker of this node would see: `word` is gpu, xpu or auto (any kind). `one_each`: each
     * worker is shown one of them. 0 leaves a clause in `why`. Asked only for these words; NULL: there are none.
     */
    int (*count_devices)(void *arg, const char *word, bool one_each, char *why, size_t why_bytes);
};

/**
 * Parse. --help, --help-all and --version end the parsing where they stand. On failure `err` has one line that names the
 * option as it was written, and nothing is left to free but options->program is there.
 */
enum fsdp_status options_read(struct options *options, const struct options_input *input,
                              struct fsdp_err *err);
void options_fini(struct options *options);

const struct option *option_find(enum option_id id);
/**
 * Is `text` a value for this option? Numbers go into `value` (a word for the count of devices gives 0). `err` has a
 * line that begins with `origin`.
 */
enum fsdp_status option_check(const struct option *option, const char *origin, const char *text, int n_cpus,
                              struct option_value *value, struct fsdp_err *err);

/** FSDPRUN_NPROC_PER_NODE, PET_NPROC_PER_NODE of nproc-per-node. */
const char *option_env_name(const struct option *option, const char *prefix, char out[OPTION_ORIGIN_BYTES]);

/** Was it given, on the command line or in the environment? Flags: and not switched off by 0. */
bool options_has(const struct options *options, enum option_id id);
/** Its number, or `fallback` when it was not given. */
int64_t options_number(const struct options *options, enum option_id id, int64_t fallback);

/*
 * Values that are lists. Each says in one line what is wrong with a text that is none, FSDP_ERR_CONFIG.
 */

/** The streams that "3", or "0:1,11:2" (bit 0 stdout, bit 1 stderr), gives each of `n_ranks` local ranks; 0: only look. */
enum fsdp_status options_streams(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err);
/** out[r]: is local rank r of `n_ranks` in "0,2,11"? `n_ranks` 0: only look. */
enum fsdp_status options_ranks(const char *text, int n_ranks, bool *out, struct fsdp_err *err);
/**
 * "a,b,,c" is "a" and "b,c". One block to be freed, ended by NULL; `out` NULL: only look. None of them is empty,
 * as that one would be in every line.
 */
enum fsdp_status options_patterns(const char *text, char ***out, struct fsdp_err *err);
/** Bit s for signal s of "SIGTERM,INT". Those that nobody can handle, and those that stop and go on, are refused. */
enum fsdp_status options_signals(const char *text, uint64_t *set, struct fsdp_err *err);

/** HOST, HOST:PORT, [V6] or [V6]:PORT. `host` of size bytes; *port: `fallback` when there is none. */
enum fsdp_status options_endpoint(const char *text, char *host, size_t size, int fallback, int *port,
                                  struct fsdp_err *err);

/**
 * Guess which option was meant by `written`: `length` bytes, without dashes, and not the beginning of any long option.
 * Writes the words that follow "did you mean": "--max-restarts", or "--set optimizer.lr=VALUE" for a key of job files.
 * Returns false when nothing is close.
 */
bool options_meant(const struct options *options, const struct options_input *input, const char *written,
                   size_t length, char out[OPTION_MEANT_BYTES]);

/** Is it a job file by its name: *.yaml or *.yml? */
bool options_names_job(const char *name);

/** Usage and every option, by `program` as it was called: fsdprun, torchrun. */
void options_print_help(FILE *out, const char *program);
/** Usage and the options that most runs need; they fit a screen of 24 lines with what cmd_help() adds. */
void options_print_brief(FILE *out, const char *program);
/** The options as the manual page writes them. */
void options_print_man(FILE *out);

#endif
