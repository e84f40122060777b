/*
 * Which key or section is meant by a name that is none: one that is nearly spelled right, or another program's name for
 * it (learning_rate, wd, bs).
 */
#ifndef JOB_NEAREST_H
#define JOB_NEAREST_H

#include <stdbool.h>

#include "shard_runtime/job/schema.h"

/** Is `name` what other programs call this key? */
bool job_key_is_called(const struct job_key *key, const char *name);

/**
 * The known name that is meant by `name`: a key of `section`, or "section.key" when the key is in another section. With
 * `section` NULL: a section, or "section.key" when `name` is a key without its section. NULL: none is close. The result
 * may point into `out`.
 */
const char *job_nearest(const char *section, const char *name, char out[JOB_KEY_PATH_BYTES]);

/** The key or section of row `i` of the table of such names; NULL past its end. */
const char *job_nearest_path(size_t i);

#endif
