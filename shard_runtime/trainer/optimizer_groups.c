#include "shard_runtime/trainer/optimizer_groups.h"

#include <string.h>

enum fsdp_status optimizer_groups_read(struct optimizer_groups *groups, const struct job *job,
                                       struct fsdp_err *err)
{
    const char *at = job->optimizer.groups != NULL ? job->optimizer.groups : "";
    enum fsdp_status status;
    struct job_rule rule;
    bool there;

    groups->n = 0;
    do {
        status = job_rule_next(job, "optimizer", &at, &rule, &there, err);
        for (size_t p = 0; p < rule.n_patterns && there && status == FSDP_OK; p++) {
            struct fsdp_optimizer_group *group = &groups->list[groups->n];

            if (groups->n == MAX_OPTIMIZER_GROUPS)
                return fsdp_fail(err, FSDP_ERR_CONFIG, "optimizer.groups: more than %d patterns",
                                 MAX_OPTIMIZER_GROUPS);
            memcpy(groups->patterns[groups->n], rule.patterns[p], sizeof rule.patterns[p]);
            group->pattern = groups->patterns[groups->n++];
            group->lr = job_rule_sets(&rule, "lr") ? rule.job.optimizer.lr : -1;
            group->weight_decay = job_rule_sets(&rule, "weight_decay") ? rule.job.optimizer.weight_decay : -1;
        }
    } while (status == FSDP_OK && there);
    if (status != FSDP_OK)
        fsdp_wrap(err, "optimizer.groups");
    return status;
}
