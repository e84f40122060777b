/* Reads the words after the name of a command over jobs: its options, and JOB or RUN. Pure. */
#ifndef LAUNCHER_JOB_WORDS_H
#define LAUNCHER_JOB_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

#include "launcher/what.h"

struct job_words {
    const char *job;     /* the word JOB or RUN; NULL: not given */
    const char **others; /* (n_others) the words after it, of a command that takes several jobs; NULL: none */
    size_t n_others;
    bool json, quiet, names, follow, save, wide, watch, help;
    int rank;          /* number of --rank; -1: all ranks */
    int tail;          /* number of --tail; -1: all lines */
    const char *svg;   /* file of --svg; NULL: not given */
    const char *agent; /* socket of --agent; NULL: not given */
    const char *since; /* time of --since, in the form of log_since_read(); NULL: not given */
};

/**
 * Reads words[0] to words[n - 1]. Options may be before and after JOB. "--rank=3" and "--rank 3" mean the
 * same.
 *   FSDP_ERR_CONFIG  bad usage; `err` says what is wrong
 */
enum fsdp_status job_words_read(struct job_words *out, const struct subcommand *command, char *const *words,
                                int n, struct fsdp_err *err);

/** Frees what job_words_read() has set, also after an error. */
void job_words_fini(struct job_words *words);

#endif
