/*
 * Sizes that have a name. Where nothing else was said, model.preset stands for the keys of one of the published models,
 * and a kind for what all models of it have.
 */
#ifndef JOB_PRESET_H
#define JOB_PRESET_H

#include <stdbool.h>
#include <stddef.h>

#include "shard_runtime/job/job.h"

struct job_preset_key {
    const char *path;  /* "model.layers" */
    const char *value; /* as it would stand in a job file */
};

/**
 * Key `index` of what model.preset and model.kind of `job` stand for, those of the preset first; false past the last.
 * `source` says where it comes from: "model.preset", "model.kind".
 */
bool job_preset_at(const struct job *job, size_t index, struct job_preset_key *out, const char **source);

#endif
