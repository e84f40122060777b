/*
 * The job of a command line: the file, --set, and the launch settings of options and environment, resolved.
 */
#ifndef LAUNCHER_JOB_INPUT_H
#define LAUNCHER_JOB_INPUT_H

#include <stdio.h>

#include "launcher/options.h"
#include "shard_runtime/job/resolve.h"

/* A job with where its values came from; the words of `origins` are held here. */
struct job_input_result {
    struct job job;
    struct job_origins origins;
    struct job_setting *settings;
    char *words;
};

/**
 * Resolve the job file options->rest[0]. On FSDP_ERR_CONFIG every problem has been written to `problems`, one
 * line each. Weakest first: job file, environment, --set in its order, options of the command line.
 */
enum fsdp_status job_input_resolve(struct job_input_result *result, const struct options *options,
                                   FILE *problems, struct fsdp_err *err);
void job_input_fini(struct job_input_result *result);

#endif
