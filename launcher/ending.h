/*
 * The lines at the end of a run. A job says what it did, where its files are, and which command to type next.
 * A program has one line, only if it was restarted. Pure.
 */
#ifndef LAUNCHER_ENDING_H
#define LAUNCHER_ENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ending {
    int status;                  /* the exit status */
    uint64_t steps, total_steps; /* steps that were done, and that the job asks for */
    double seconds;
    double tokens_per_s; /* mean over the time in which steps were done; 0: unknown */
    int n_restarts;      /* worlds that were formed after the first */
    double restarting_s; /* time that these restarts cost */
    uint64_t n_repeated; /* steps that were done again after a restart */
    bool saved;          /* this run has published a checkpoint */
    uint64_t saved_step; /* step of the newest checkpoint of this run */
    bool resumes;        /* the same command would go on from that checkpoint */
    const char *run_dir;
    const char *checkpoint_dir; /* NULL: RUN/checkpoints */
    const char *summary;        /* the file of --summary; NULL: none is written */
};

/**
 * Writes the lines to `out`; each begins with "fsdprun: " and ends with a newline. A line that does not fit
 * into `size` is left out, with all lines after it. Returns the length of the text.
 */
size_t ending_words(const struct ending *ending, char *out, size_t size);

/**
 * The same for a program that was restarted `n_restarts` times, at least once.
 *   restarting_s  time that these restarts cost
 *   logs          the directory with the output of its ranks; NULL: it is not kept
 */
size_t ending_program_words(int n_restarts, double restarting_s, const char *logs, char *out, size_t size);

#endif
