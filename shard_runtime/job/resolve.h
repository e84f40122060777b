/*
 * Combines a job file, settings that override it, and defaults into one struct job. Also records where each
 * value came from.
 */
#ifndef JOB_RESOLVE_H
#define JOB_RESOLVE_H

#include <stddef.h>
#include <stdio.h>

#include <fsdp/status.h>

#include "shard_runtime/job/job.h"
#include "shard_runtime/job/report.h"
#include "shard_runtime/job/schema.h"

/** One setting, "section.key=value", and its origin ("--set 1", "PET_NNODES"). Both texts are borrowed. */
struct job_setting {
    const char *origin, *text;
};

struct job_input {
    const char *path; /* the job file's name, as the user gave it; data.path is relative to its directory */
    const char *text; /* the file's text, or NULL: read the file */
    size_t length;
    const struct job_setting *settings; /* a later setting overrides an earlier one */
    size_t n_settings;
    const struct job_setting *defaults; /* settings that a key of the file overrides */
    size_t n_defaults;
};

/*
 * The place from which each value came, in the order of job_schema. The sources are borrowed from the input.
 */
struct job_origins {
    struct job_place of[JOB_MAX_KEYS];
};

/**
 * Resolves the job. After FSDP_OK `job` is complete and checked, and the caller frees it. After
 * FSDP_ERR_CONFIG `job` is empty and `report` has at least one line. The only other status is FSDP_ERR_NOMEM.
 */
enum fsdp_status job_resolve(struct job *job, struct job_origins *origins, const struct job_input *input,
                             struct job_report *report);

/** Writes the job as a job file. A comment on every line names the place from which the value came. */
enum fsdp_status job_print_yaml(const struct job *job, const struct job_origins *origins, FILE *out,
                                struct fsdp_err *err);

#endif
