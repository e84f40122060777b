/*
 * errors.json: what ended the job, and what died only because of that.
 *
 * {"time", "status", "cause": {"class", "rank", "local_rank", "host", "pid", "exit_code", "signal", "signal_name",
 *   "oom_kill", "phase", "step", "generation", "message", "traceback", "raised", "error_file", "log", "stderr": [lines]},
 *   "collateral": {"count", "ranks": [{"rank", "local_rank", "host", "pid", "exit_code", "signal", "signal_name"}]}}
 * `phase` of our trainer is "start", "forward", ...; of a program, and before a first beat, "starting" (it has not come to
 * the store where the ranks meet), "rendezvous" (others have not), "running", "stopping" (it had been asked to end).
 * What is not known is null; `raised` is the epoch time of the failure by the clock of its host, from its error file.
 * `status` is fsdprun's exit status. `class` is one of the names below: workers may return the numbers that fsdprun
 * uses itself, and it tells them apart.
 */
#ifndef AGENT_ERRORS_H
#define AGENT_ERRORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

struct rundir;

enum errors_class {
    ERRORS_EXIT = 1, /* "exit": a worker ended with exit_code */
    ERRORS_SIGNAL,   /* "signal": a worker was killed by signal */
    ERRORS_EXEC,     /* "exec": the program cannot be executed or is not found; message has the reason */
    ERRORS_HANG,     /* "hang": no progress for launch.hang_timeout_s */
    ERRORS_NODE,     /* "node": a node or the link to it was lost */
    ERRORS_WORLD,    /* "world": no world could be formed */
    ERRORS_STOPPED,  /* "stopped": a signal to fsdprun */
    ERRORS_NOTICE,   /* "notice": saved and stopped on request */
    ERRORS_IO,       /* "io": the launcher could not write or read what it must */
    ERRORS_CONFIG,   /* "config": a job or run directory that cannot be used */
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

/** The last lines a rank wrote to stderr: `n_lines` zero-terminated lines, oldest first, pointing into `bytes`. */
struct errors_tail {
    int n_lines;
    const char *lines[ERRORS_TAIL_LINES];
    char bytes[ERRORS_TAIL_BYTES + ERRORS_TAIL_LINES];
};

/**
 * What a worker left behind about its end, beyond how it ended: its last lines, and its error file
 * (agent/record/error_file.h). All zero: nothing.
 */
struct errors_detail {
    struct errors_tail tail;
    char message[ERRORS_MESSAGE_BYTES];     /* "ValueError: x"; empty: none */
    char traceback[ERRORS_TRACEBACK_BYTES]; /* its Python call stack, or the end of it; empty: none */
    int64_t raised_us;                      /* when, in microseconds of its host's epoch clock; 0: unknown */
    char error_file[ERRORS_PATH_BYTES];     /* on its host; empty: there is none */
    char log[ERRORS_PATH_BYTES];            /* of its stderr, on its host; empty: none is kept */
    bool shown;                             /* its stderr comes out of fsdprun's on its node */
    uint64_t output_at;                     /* bytes its node had taken by then of all its ranks' output */
};

/** A copy that stands by itself: its lines point into its own bytes. */
void errors_detail_copy(struct errors_detail *to, const struct errors_detail *from);

/** `text` into `out`, cut where it must be to whole characters of UTF-8. */
void errors_copy_text(char *out, size_t size, const char *text, size_t n);

bool errors_detail_is_empty(const struct errors_detail *detail);

/**
 * Has what errors_account() would show just gone by on fsdprun's stderr? For the node of that worker. `output_now`: bytes
 * taken of all its ranks' output, as in `output_at`; more than a screen since then, and it counts as scrolled away.
 */
bool errors_detail_went_by(const struct errors_detail *detail, uint64_t output_now);

/** One dead worker, or none (rank -1) when the class is not about one. */
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
    const char *where; /* where a program was, in words for the line, in place of "in PHASE"; NULL: nothing */
    int64_t step;      /* -1: unknown */
    int generation;
    const char *message;                /* one line more about it; NULL: none */
    const struct errors_detail *detail; /* NULL: nothing is known */
    bool oom_kill;                      /* the kernel's OOM killer ended it */
    const struct errors_death *collateral;
    size_t n_collateral; /* all are counted, the first ERRORS_COLLATERAL_LISTED are listed */
};

const char *errors_class_name(enum errors_class class); /* "exit", ...; "unknown" out of range */

/** "SIGSEGV", "SIGRTMIN+2", "signal 77": into `out` (32 bytes), which is returned. */
const char *errors_signal_name(int signal, char *out);

/** fsdprun's status for a death: its exit code, or 128 + its signal. */
int errors_death_status(const struct errors_death *death);

/** Write errors.json into the run directory as one step (rundir_write). */
enum fsdp_status errors_write(struct rundir *rundir, const struct errors_report *report,
                              struct fsdp_err *err);

/** The report as JSON, to be freed; NULL when memory ran out. */
char *errors_json(const struct errors_report *report, double time_s);

/**
 * The first cause in one line for people, no newline:
 *   rank 3 (host n1, pid 4242) was killed by SIGSEGV in forward of step 17, generation 2; 7 other ranks were stopped
 * Cut to `size`. Returns `out`.
 */
const char *errors_line(const struct errors_report *report, char *out, size_t size);

/**
 * What is shown above that line: the end of the traceback, else of what was captured of stderr (from where a Python
 * traceback in it begins), a heading first, each line indented, control bytes replaced. An empty text: there is
 * nothing. Cut to `size`. Returns `out`.
 */
const char *errors_account(const struct errors_detail *detail, char *out, size_t size);

/**
 * The last lines (at most ERRORS_TAIL_LINES and ERRORS_TAIL_BYTES) of `n` bytes. `cut`: they are the end of more, and may
 * begin within a line.
 */
void errors_tail_take(struct errors_tail *tail, const char *bytes, size_t n, bool cut);

#endif
