/*
 * What a job says at its end: what it did, where its files are, and what to type next. Pure.
 */
#ifndef LAUNCHER_ENDING_H
#define LAUNCHER_ENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ending {
    int status;                  /* the exit status */
    uint64_t steps, total_steps; /* done, and asked for */
    double seconds;
    double tokens_per_s; /* mean while steps were done; 0: unknown */
    int n_restarts;      /* worlds that were formed after the first */
    double restarting_s; /* the time that they cost */
    uint64_t n_repeated; /* steps that had to be done again */
    bool saved;          /* this run has published a checkpoint ... */
    uint64_t saved_step; /* ... of this step, the newest */
    bool resumes;        /* the same command would go on from it */
    const char *run_dir;
    const char *checkpoint_dir; /* NULL: RUN/checkpoints */
    const char *summary;        /* the file of --summary; NULL: none is written */
};

/**
 * Print the lines to `out`, each with its newline and "fsdprun: " in front. A line that does not fit into
 * `size` is left out, and so are those after it. Returns the length of the text.
 */
size_t ending_words(const struct ending *ending, char *out, size_t size);

#endif
