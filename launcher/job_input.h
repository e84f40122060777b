/*
 * Resolves the job of a command line: the job file, with the settings of --set, of options and of the
 * environment.
 */
#ifndef LAUNCHER_JOB_INPUT_H
#define LAUNCHER_JOB_INPUT_H

#include <stdio.h>

#include "launcher/options.h"
#include "shard_runtime/job/resolve.h"

/* A job, and where its values came from. `settings` and `words` are the memory that `origins` points into. */
struct job_input_result {
    struct job job;
    struct job_origins origins;
    struct job_setting *settings;
    char *words;
};

/**
 * Resolves the job file options->rest[0]. If a key is set several times, the strongest setting wins. From
 * weak to strong: job file, environment, --set in the given order, options of the command line.
 *   problems  receives one line for each problem of the job
 *   FSDP_ERR_CONFIG  the job cannot be used; `problems` has the reasons
 *   FSDP_ERR_NOMEM   no memory
 * After a failure `result` is empty.
 */
enum fsdp_status job_input_resolve(struct job_input_result *result, const struct options *options,
                                   FILE *problems, struct fsdp_err *err);

/** Frees what `result` holds and empties it. It may be empty already. */
void job_input_fini(struct job_input_result *result);

#endif
