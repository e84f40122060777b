/*
 * Finds the keys of a job that have changed since a checkpoint was saved. A job is given as the text that
 * job_to_json() writes: an object of sections, each an object of keys. This module does not know what a key
 * means. `defaults`, a third text of that form, lists the keys to compare and their default values.
 *
 * If the older text has a section but lacks a key in it, the key had its default value. If the older text
 * lacks the whole section, its keys are not compared.
 */
#ifndef SHARDFILE_JOB_CHANGES_H
#define SHARDFILE_JOB_CHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/fingerprint.h"
#include "shard_runtime/shardfile/manifest.h"

enum { JOB_CHANGES_BYTES = 512 };

/*
 * The changed keys as text: "optimizer.lr 0.01 -> 0.02, parallel.groups". If a value is long, the text gives
 * only its key.
 */
struct job_changes {
    size_t n;
    char words[JOB_CHANGES_BYTES]; /* ends in "and N more" if the changes do not all fit */
};

/**
 * Compares the job in `manifest` with `job`. A manifest without a job has no changes.
 *   skip  keys whose "section.name" begins with this text are not compared; NULL compares all keys
 *   FSDP_ERR_FORMAT  one of the texts does not have the form above
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status job_changes_find(struct job_changes *out, const struct manifest *manifest, const char *job,
                                  const char *defaults, const char *skip, struct fsdp_err *err);

/**
 * Returns the whole number at "section.name" in the manifest's job. Returns 0 if the key is absent, null or
 * not a whole number.
 */
uint64_t job_changes_count(const struct manifest *manifest, const char *section, const char *name);

/**
 * Refuses to reuse a finished run if `job` would give another result. `manifest` is of a run that has done
 * all its steps.
 *   defaults  the keys that decide the result (job_defaults_json())
 *   check     false: the section `data` is not compared (checkpoint.data: ignore)
 *   bytes     fingerprint of the current data, compared instead of data.path if the manifest records one;
 *             NULL if unknown
 *   FSDP_ERR_CONFIG  the result would differ; the message names the keys
 */
enum fsdp_status job_changes_refuse(const struct manifest *manifest, const char *job, const char *defaults,
                                    bool check, const struct fingerprint *bytes, struct fsdp_err *err);

#endif
