/*
 * Chooses the groups that a job gathers early: a number of groups ahead, or the groups that a rule of
 * parallel.groups names.
 */
#ifndef TRAINER_SHARDING_PREFETCH_H
#define TRAINER_SHARDING_PREFETCH_H

#include <fsdp/fsdp.h>

#include "shard_runtime/job/job.h"

/**
 * Sets the prefetches of all groups; must be called after every group was formed. A number of groups ahead
 * follows the order of the tree, which is the order of forward. The root runs first, so no group prefetches
 * it. FSDP_ERR_CONFIG: a rule names a group that does not exist.
 */
enum fsdp_status sharding_prefetch(struct fsdp_module *root, const struct job *job, struct fsdp_err *err);

#endif
