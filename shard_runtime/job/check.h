/*
 * Checks the rules that involve several keys of a job, which the table of keys (schema.h) cannot express. An
 * example: model.heads must divide model.dim.
 */
#ifndef JOB_CHECK_H
#define JOB_CHECK_H

#include <stddef.h>

#include <fsdp/status.h>

#include "shard_runtime/job/job.h"

/**
 * Receives one misfit. `keys` are the keys involved, separated by '|'; the message is about the first of
 * them. `words` describes the problem.
 */
typedef void job_misfit(void *context, const char *keys, enum fsdp_status status, const char *words);

/**
 * Calls `report` with `context` for every misfit between the values of `job`. Returns the number of misfits.
 */
size_t job_check(const struct job *job, job_misfit *report, void *context);

#endif
