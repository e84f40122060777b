/*
 * The words after a command over jobs: its options and JOB. Pure.
 */
#ifndef LAUNCHER_JOB_WORDS_H
#define LAUNCHER_JOB_WORDS_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "launcher/what.h"

struct job_words {
    const char *job; /* or run; NULL: none was given, as to `ps` */
    bool json, quiet, names, follow, save, wide, watch, help;
    int rank;          /* -1: all */
    const char *svg;   /* NULL: not given */
    const char *since; /* as log_since_read() takes it; NULL: not given */
};

/**
 * Read words[0..n): options may stand before and after JOB; "--rank=3" and "--rank 3" mean the same.
 *   FSDP_ERR_CONFIG  bad usage; the words say what is wrong
 */
enum fsdp_status job_words_read(struct job_words *out, const struct subcommand *command, char *const *words,
                                int n, struct fsdp_err *err);

#endif
