/*
 * optimizer.groups of a job as the optimizer takes them.
 */
#ifndef TRAINER_OPTIMIZER_GROUPS_H
#define TRAINER_OPTIMIZER_GROUPS_H

#include <fsdp/optimizer.h>

#include "shard_runtime/job/rules.h"

enum { MAX_OPTIMIZER_GROUPS = 256 };

struct optimizer_groups {
    struct fsdp_optimizer_group list[MAX_OPTIMIZER_GROUPS];
    size_t n;
};

/** FSDP_ERR_CONFIG names the key and what is wrong with it. Patterns are the job's. */
enum fsdp_status optimizer_groups_read(struct optimizer_groups *groups, const struct job *job,
                                       struct fsdp_err *err);

#endif
