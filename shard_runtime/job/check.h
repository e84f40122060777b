/*
 * What no single key can say: keys that must fit each other.
 */
#ifndef JOB_CHECK_H
#define JOB_CHECK_H

#include <stddef.h>

#include <fsdp/status.h>

#include "shard_runtime/job/job.h"

/** Called for each misfit with the keys it lies between, parted by '|', the one to name first. */
typedef void job_misfit(void *context, const char *keys, enum fsdp_status status, const char *words);

/** Report every misfit between the values of `job`; returns how many there are. */
size_t job_check(const struct job *job, job_misfit *report, void *context);

#endif
