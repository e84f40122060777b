/*
 * Values that follow from model.preset and model.kind. model.preset gives the sizes of one of the published
 * models. model.kind gives the keys that are the same for all models of that kind. Both apply only to keys
 * that the user did not set.
 */
#ifndef JOB_PRESET_H
#define JOB_PRESET_H

#include <stdbool.h>
#include <stddef.h>

#include "shard_runtime/job/job.h"

struct job_preset_key {
    const char *path;  /* "model.layers" */
    const char *value; /* as written in a job file */
};

/**
 * Stores in *out the key number `index` that follows from model.preset or model.kind of `job`. The keys of
 * the preset come first. *source receives "model.preset" or "model.kind". Returns false after the last key.
 */
bool job_preset_at(const struct job *job, size_t index, struct job_preset_key *out, const char **source);

#endif
