/* optimizer.groups of a job, in the form that the optimizer takes. */
#ifndef TRAINER_OPTIMIZER_GROUPS_H
#define TRAINER_OPTIMIZER_GROUPS_H

#include <fsdp/optimizer.h>

#include "shard_runtime/job/rules.h"

enum { MAX_OPTIMIZER_GROUPS = 256 };

struct optimizer_groups {
    struct fsdp_optimizer_group list[MAX_OPTIMIZER_GROUPS];
    size_t n;
};

/**
 * Reads the groups of `job`. FSDP_ERR_CONFIG: the message names the key and its error. The patterns in
 * `groups` point into the job.
 */
enum fsdp_status optimizer_groups_read(struct optimizer_groups *groups, const struct job *job,
                                       struct fsdp_err *err);

#endif
