#include "shard_runtime/plan/plan.h"

#include <stdlib.h>

#include "shard_runtime/core/require.h"

size_t plan_whole_bytes(const struct plan_group *group)
{
    return group->whole_bytes[PLAN_FORWARD_ONLY] + group->whole_bytes[PLAN_BOTH_WAYS];
}

size_t plan_part_offset(const struct plan_group *group, enum plan_part part)
{
    return part == PLAN_FORWARD_ONLY ? 0 : group->whole_bytes[PLAN_FORWARD_ONLY];
}

int plan_grad(const struct plan *plan, const struct plan_entry *entry, int param)
{
    return plan->grads[entry->backward * plan->n_params + param];
}

enum fsdp_status plan_make(struct plan *plan, const struct graph *graph, const struct fsdp_module *root,
                           const struct plan_options *options, struct fsdp_err *err)
{
    static enum fsdp_status (*const steps[])(struct plan *, struct fsdp_err *) = {
        plan_write_program, plan_fuse_neighbours, plan_lay_gradients, plan_list_accesses,
        plan_share_buffers, plan_place_buffers,   plan_order_streams,
    };

    *plan = (struct plan){ .options = *options, .graph = graph };
    if (plan->options.R == 0)
        plan->options.R = 1;
    OK_OR_RETURN(plan_form_groups(plan, root, err));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        OK_OR_RETURN(steps[i](plan, err));
    return FSDP_OK;
}

void plan_fini(struct plan *plan)
{
    for (int g = 0; g < plan->n_groups; g++)
        free(plan->groups[g].params);
    free(plan->grads);
    free(plan->params);
    free(plan->groups);
    free(plan->buffers);
    free(plan->entries);
    free(plan->accesses);
    *plan = (struct plan){ 0 };
}
