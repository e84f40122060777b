/*
 * From a job file, settings that override it, and defaults, to one struct job that says of every value where
 * it came from.
 */
#ifndef JOB_RESOLVE_H
#define JOB_RESOLVE_H

#include <stddef.h>
#include <stdio.h>

#include <fsdp/status.h>

#include "shard_runtime/job/job.h"
#include "shard_runtime/job/report.h"
#include "shard_runtime/job/schema.h"

/** "section.key=value", from the place that `origin` names ("--set 1", "PET_NNODES"). Both borrowed. */
struct job_setting {
    const char *origin, *text;
};

struct job_input {
    const char *path; /* the job file, as the user named it; its folder is where data.path starts */
    const char *text; /* its text, or NULL: read the file */
    size_t length;
    const struct job_setting *settings; /* later ones win */
    size_t n_settings;
};

/* Where each value came from, in the order of job_schema. Borrows from the input. */
struct job_origins {
    struct job_place of[JOB_MAX_KEYS];
};

/**
 * Resolve. On FSDP_OK `job` is whole, checked, and to be freed. On FSDP_ERR_CONFIG it is empty and `report`
 * has at least one line. FSDP_ERR_NOMEM is the only other.
 */
enum fsdp_status job_resolve(struct job *job, struct job_origins *origins, const struct job_input *input,
                             struct job_report *report);

/** Is this "section.key=value" one that would be read? For options of the command line: words in `err`, no
 * place. */
enum fsdp_status job_setting_check(const char *path, const char *value, struct fsdp_err *err);

/** The job as a job file, with a comment on every line that says where its value came from. */
enum fsdp_status job_print_yaml(const struct job *job, const struct job_origins *origins, FILE *out,
                                struct fsdp_err *err);

#endif
