#include "shard_runtime/trainer/optimizer_groups.h"

/*
 * The number that the rule sets; a negative one if the rule does not set it, and the optimizer's own value
 * then applies.
 */
static double number_of(const struct job_rule *rule, const char *name)
{
    const struct job_value *value = job_rule_value(rule, name);

    return value == NULL ? -1 : value->number[0];
}

enum fsdp_status optimizer_groups_read(struct optimizer_groups *groups, const struct job *job,
                                       struct fsdp_err *err)
{
    const struct job_rules *rules = job->optimizer.groups;

    groups->n = 0;
    for (size_t i = 0; rules != NULL && i < rules->n; i++)
        for (size_t p = 0; p < rules->list[i].names.n; p++) {
            if (groups->n == MAX_OPTIMIZER_GROUPS)
                return fsdp_fail(err, FSDP_ERR_CONFIG, "optimizer.groups: more than %d patterns",
                                 (int)MAX_OPTIMIZER_GROUPS);
            groups->list[groups->n++] =
                (struct fsdp_optimizer_group){ .pattern = rules->list[i].names.list[p],
                                               .lr = number_of(&rules->list[i], "lr"),
                                               .weight_decay = number_of(&rules->list[i], "weight_decay") };
        }
    return FSDP_OK;
}
