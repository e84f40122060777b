#include "shard_runtime/plan/plan.h"

#include <stdlib.h>

const char *plan_entry_name(enum plan_entry_kind kind)
{
    static const char *const names[] = {
        [PLAN_AMAX] = "amax",         [PLAN_GATHER] = "gather",         [PLAN_UNPACK] = "unpack",
        [PLAN_SLICE] = "slice",       [PLAN_RESHARD] = "reshard",       [PLAN_FORWARD] = "forward",
        [PLAN_LOSS] = "loss",         [PLAN_BACKWARD] = "backward",     [PLAN_PACK] = "pack",
        [PLAN_REDUCE] = "reduce",     [PLAN_ALL_REDUCE] = "all_reduce", [PLAN_STORE] = "store",
        [PLAN_COMPLETE] = "complete", [PLAN_COPY_IN] = "copy_in",       [PLAN_COPY_OUT] = "copy_out",
    };

    return names[kind];
}

const char *plan_stream_name(enum plan_stream stream)
{
    static const char *const names[] = {
        [PLAN_COMPUTE] = "compute",         [PLAN_GATHERS] = "gathers", [PLAN_REDUCES] = "reduces",
        [PLAN_ALL_REDUCES] = "all_reduces", [PLAN_TENSOR] = "tensor",   [PLAN_COPIES_IN] = "copies_in",
        [PLAN_COPIES_OUT] = "copies_out",
    };

    return names[stream];
}

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
    enum fsdp_status status;

    *plan = (struct plan){ .options = *options, .graph = graph };
    if (plan->options.R == 0)
        plan->options.R = 1;
    status = plan_form_groups(plan, root, err);
    if (status == FSDP_OK)
        status = plan_write_program(plan, err);
    if (status == FSDP_OK)
        plan_fuse_neighbours(plan);
    if (status == FSDP_OK)
        status = plan_lay_gradients(plan, err);
    if (status == FSDP_OK)
        status = plan_list_accesses(plan, err);
    if (status == FSDP_OK)
        status = plan_share_buffers(plan, err);
    if (status == FSDP_OK)
        status = plan_place_buffers(plan, err);
    if (status == FSDP_OK)
        status = plan_order_streams(plan, err);
    return status;
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
