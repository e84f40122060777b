/*
 * Suggests a key or section for an unknown name. The name may be misspelled, or it may be another program's
 * name for the key (learning_rate, wd, bs).
 */
#ifndef JOB_NEAREST_H
#define JOB_NEAREST_H

#include <stdbool.h>

#include "shard_runtime/job/schema.h"

/** Returns true if other programs use `name` for this key. */
bool job_key_is_called(const struct job_key *key, const char *name);

/**
 * Returns the known name that the user probably meant by `name`, or NULL if none is close. With a `section`,
 * the result is a key of that section, or "section.key" if the key is in another section. With `section`
 * NULL, the result is a section, or "section.key" if `name` is a key without its section. The result may
 * point into `out`.
 */
const char *job_nearest(const char *section, const char *name, char out[JOB_KEY_PATH_BYTES]);

/** Returns the key or section in row `i` of the table of other programs' names, or NULL after its end. */
const char *job_nearest_path(size_t i);

#endif
