/*
 * errors.json: what ended the job, and which workers died only because of that. Also the line and the account
 * of the failure that fsdprun prints at its end. Pure.
 *
 * {"time", "status",
 *   "cause": {"class", "rank", "local_rank", "host", "pid", "exit_code", "signal", "signal_name", "phase",
 *             "step", "oom_kill", "generation", "message", "traceback", "raised", "error_file", "log",
 *             "stderr": [lines], "hang": {as in agent/watch/hang_report.h}},
 *   "collateral": {"count", "ranks": [{"rank", "local_rank", "host", "pid", "exit_code", "signal",
 *                                      "signal_name"}]}}
 *
 *   status  fsdprun's exit status
 *   class   a name from enum errors_class; workers may exit with numbers that fsdprun uses itself, and the
 *           class tells them apart
 *   phase   of our trainer "start", "forward", ... Of a program, and before a first beat: "starting" (it has
 *           not reached the store where the ranks meet), "rendezvous" (others have not), "running", or
 *           "stopping" (it had been asked to end)
 *   raised  seconds since the epoch, when the worker failed, by the clock of its host; from its error file
 * What is not known is null.
 */
#ifndef AGENT_ERRORS_H
#define AGENT_ERRORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum errors_class {
    ERRORS_EXIT = 1, /* "exit": a worker ended with exit_code */
    ERRORS_SIGNAL,   /* "signal": a worker was killed by signal */
    ERRORS_EXEC,     /* "exec": the program cannot be executed or is not found; `message` has the reason */
    ERRORS_HANG,     /* "hang": no progress for launch.hang_timeout_s */
    ERRORS_NODE,     /* "node": a node or the link to it was lost */
    ERRORS_WORLD,    /* "world": no world could be formed */
    ERRORS_STOPPED,  /* "stopped": a signal to fsdprun */
    ERRORS_NOTICE,   /* "notice": saved and stopped on request */
    ERRORS_IO,       /* "io": fsdprun could not write or read a file that it needs */
    ERRORS_CONFIG,   /* "config": the job or the run directory cannot be used */
    ERRORS_BUG,      /* "bug": ours */
    ERRORS_CLASS_COUNT
};

enum {
    ERRORS_TAIL_LINES = 20,
    ERRORS_TAIL_BYTES = 4096,
    ERRORS_COLLATERAL_LISTED = 1024,
    ERRORS_MESSAGE_BYTES = 1024,
    ERRORS_TRACEBACK_BYTES = 8192,
    ERRORS_PATH_BYTES = 4096
};

/** The last lines that a rank wrote to stderr: zero-terminated, oldest first. They point into `bytes`. */
struct errors_tail {
    int n_lines;
    const char *lines[ERRORS_TAIL_LINES];
    char bytes[ERRORS_TAIL_BYTES + ERRORS_TAIL_LINES];
};

/**
 * What a worker left about its end, beyond how it ended: its last lines, and its error file
 * (agent/record/error_file.h). All zero: nothing.
 */
struct errors_detail {
    struct errors_tail tail;
    char message[ERRORS_MESSAGE_BYTES]; /* "ValueError: x"; empty: none */
    /* the Python call stack; if it is too long, its end; empty: none */
    char traceback[ERRORS_TRACEBACK_BYTES];
    /* when the worker failed, in microseconds of its host's epoch clock; 0: unknown */
    int64_t raised_us;
    char error_file[ERRORS_PATH_BYTES]; /* on its host; empty: there is none */
    char log[ERRORS_PATH_BYTES];        /* the file of its stderr, on its host; empty: none is kept */
    /* the worker's stderr was also shown on the stderr of fsdprun on the worker's node */
    bool shown;
    /* bytes that the worker's node had read by then from all of its ranks */
    uint64_t output_at;
};

/** Copy *from to *to. The lines of the copy point into its own bytes. */
void errors_detail_copy(struct errors_detail *to, const struct errors_detail *from);

/**
 * Copy text[0..n) to `out` (`size` bytes), zero-terminated. What does not fit is cut at a whole character of
 * UTF-8.
 */
void errors_copy_text(char *out, size_t size, const char *text, size_t n);

/** Returns whether nothing is known. */
bool errors_detail_is_empty(const struct errors_detail *detail);

/**
 * Returns whether what errors_account() would print was shown on fsdprun's stderr a moment ago. Only for the
 * node of that worker.
 *   output_now  bytes taken so far of all ranks' output, as in `output_at`. If more than a screen of them
 *               came since then, the account has scrolled away.
 */
bool errors_detail_went_by(const struct errors_detail *detail, uint64_t output_now);

/** One dead worker. Rank -1: none, because the class is not about a worker. */
struct errors_death {
    int rank, local_rank; /* -1: none */
    const char *host;     /* NULL: unknown */
    int64_t pid;          /* 0: none */
    int exit_code;        /* -1: it did not exit */
    int signal;           /* 0: no signal */
};

struct errors_report {
    enum errors_class class;
    int status; /* exit status of fsdprun */
    struct errors_death cause;
    const char *phase; /* "forward", ...; NULL: unknown */
    const char *where; /* for a program: text that replaces "in PHASE", about where it was; NULL: nothing */
    int64_t step;      /* -1: unknown */
    int generation;
    const char *message;                /* one line more about it; NULL: none */
    const struct errors_detail *detail; /* NULL: nothing is known */
    bool oom_kill;                      /* the kernel's OOM killer ended it */
    const char *hang; /* JSON: what the ranks showed while it hung (hang_table_take()); NULL: nothing */
    const struct errors_death *collateral;
    /* length of `collateral`, all that died as a consequence; errors.json lists ERRORS_COLLATERAL_LISTED */
    size_t n_collateral;
};

/** Returns the name of a class, "exit", ...; "unknown" if it is out of range. */
const char *errors_class_name(enum errors_class class);

/** Print the name of a signal to `out` (32 bytes): "SIGSEGV", "SIGRTMIN+2", "signal 77". Returns `out`. */
const char *errors_signal_name(int signal, char *out);

/**
 * Returns the text of errors.json, to be freed by the caller; NULL if there is no memory. `time_s`: since the
 * epoch.
 */
char *errors_json(const struct errors_report *report, double time_s);

/**
 * Print the first cause as one line for people, without a newline:
 *   rank 3 (host n1, pid 4242) was killed by SIGSEGV in forward of step 17, generation 2; 7 other ranks were
 *   stopped
 * What does not fit in `size` bytes is cut off. Returns `out`.
 */
const char *errors_line(const struct errors_report *report, char *out, size_t size);

/**
 * Print what is shown above the line of errors_line(): a heading, and the end of the traceback. Without a
 * traceback, the last lines of stderr, from the beginning of a Python traceback in them. Each line is
 * indented, and control bytes are replaced. The text is empty if there is neither. What does not fit in
 * `size` bytes is cut off. Returns `out`.
 */
const char *errors_account(const struct errors_detail *detail, char *out, size_t size);

/**
 * Take the last lines of bytes[0..n), at most ERRORS_TAIL_LINES and ERRORS_TAIL_BYTES.
 *   cut  older bytes are missing before these, so the first line may have lost its beginning
 */
void errors_tail_take(struct errors_tail *tail, const char *bytes, size_t n, bool cut);

#endif
