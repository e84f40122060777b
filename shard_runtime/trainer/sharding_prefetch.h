/*
 * Which groups a job gathers early: so many ahead, or those that a rule of parallel.groups names.
 */
#ifndef TRAINER_SHARDING_PREFETCH_H
#define TRAINER_SHARDING_PREFETCH_H

#include <fsdp/fsdp.h>

#include "shard_runtime/job/job.h"

/** After every group was formed. "So many ahead" goes by the tree, in which modules stand in the order of forward; the
 * root, which runs first, is no one's next. FSDP_ERR_CONFIG: a name that no group has. */
enum fsdp_status sharding_prefetch(struct fsdp_module *root, const struct job *job, struct fsdp_err *err);

#endif
