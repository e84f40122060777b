/*
 * Which keys of a job have changed since a checkpoint was saved. Jobs are compared as the text that
 * job_to_json() writes: an object of sections, each an object of keys. Nothing here knows what a key means:
 * `defaults`, a third text of that form, lists the keys that are compared and their default values.
 * A key that the older text lacks has its default, if its section is there; without the section it is not
 * compared.
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

/* The changes in words: "optimizer.lr 0.01 -> 0.02, parallel.groups". Long values are left out. */
struct job_changes {
    size_t n;
    char words[JOB_CHANGES_BYTES]; /* ends in "and N more" when there is no room for all */
};

/**
 * Compare the job in `manifest` with `job`. A manifest without a job has no changes.
 *   skip  keys whose "section.name" begins with this are not compared; NULL: none
 *   FSDP_ERR_FORMAT  a text is not of that form
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status job_changes_find(struct job_changes *out, const struct manifest *manifest, const char *job,
                                  const char *defaults, const char *skip, struct fsdp_err *err);

/** The whole number at "section.name" of the manifest's job; 0 when it is absent, null or another value. */
uint64_t job_changes_count(const struct manifest *manifest, const char *section, const char *name);

/**
 * The run in `manifest` has all its steps. Would `job` give the same result?
 *   defaults  the keys that decide the result (job_defaults_json())
 *   check     false: the section `data` is not compared (checkpoint.data: ignore)
 *   bytes     the data now, compared in place of data.path if the manifest says what it was; NULL: not known
 *   FSDP_ERR_CONFIG  no: the message names the keys
 */
enum fsdp_status job_changes_refuse(const struct manifest *manifest, const char *job, const char *defaults,
                                    bool check, const struct fingerprint *bytes, struct fsdp_err *err);

#endif
