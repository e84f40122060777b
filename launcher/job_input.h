/*
 * The job of a command line: the job file with --set and the launch settings of options and environment,
 * resolved.
 */
#ifndef LAUNCHER_JOB_INPUT_H
#define LAUNCHER_JOB_INPUT_H

#include <stdio.h>

#include "launcher/options.h"
#include "shard_runtime/job/resolve.h"

/* A job and where its values came from. The other two members hold memory that `origins` points into. */
struct job_input_result {
    struct job job;
    struct job_origins origins;
    struct job_setting *settings;
    char *words;
};

/**
 * Resolve the job file options->rest[0]. The strongest setting of a key wins. From weak to strong: job file,
 * environment, --set in the order given, options of the command line.
 *   problems  gets one line for each problem of the job
 *   FSDP_ERR_CONFIG  the job cannot be used: see `problems`
 *   FSDP_ERR_NOMEM   no memory
 * On failure the result is empty.
 */
enum fsdp_status job_input_resolve(struct job_input_result *result, const struct options *options,
                                   FILE *problems, struct fsdp_err *err);

/** Release the result and empty it. An empty one is fine. */
void job_input_fini(struct job_input_result *result);

#endif
