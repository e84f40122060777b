/*
 * A model's weights as files for other programs: what they call the tensors, and config.json.
 */
#ifndef JOB_MODEL_FILES_H
#define JOB_MODEL_FILES_H

#include "shard_runtime/core/json.h"
#include "shard_runtime/job/job.h"

/** What the library transformers puts before the name of each of GPT-2's tensors. */
#define JOB_GPT2_PREFIX "transformer."

enum { JOB_GPT2_PASSED_OVER = 3 };
/**
 * Patterns of fnmatch(3) for tensors in GPT-2's files that are not parameters of the model. They match names
 * without JOB_GPT2_PREFIX.
 */
extern const char *const job_gpt2_passed_over[JOB_GPT2_PASSED_OVER];

/** Returns such patterns for the job's kind of model; *n receives their number. */
const char *const *job_weights_passed_over(const struct job *job, size_t *n);

/** Returns what precedes each parameter's name in the files of other programs; "" for nothing. */
const char *job_weights_prefix(const struct job *job);

/**
 * Appends the content of config.json: for gpt2, that of the library transformers; for other kinds, one of our
 * own.
 */
void job_model_config(const struct job *job, struct json_text *out);

#endif
