/*
 * The methods of a sharded module: each changes a field of its unit's policy, and with `recurse` of all units below.
 */
#include <fsdp/fully_shard.h>

#include <stdint.h>

#include "shard_runtime/core/module.h"

/* The next unit at or below `root` behind `module`, NULL: the first; without `recurse` only root itself. */
static struct fsdp_module *next_unit(struct fsdp_module *root, struct fsdp_module *module, bool recurse)
{
    const struct fsdp_module *m = module;

    if (root == NULL)
        return NULL;
    do
        m = m == NULL ? root : recurse ? module_next(root, m) : NULL;
    while (m != NULL && !m->sharded);
    return (struct fsdp_module *)(uintptr_t)m; /* of the tree that `root` lets us change */
}

/* Of modules that form one group the first has the policy. */
static struct unit_policy *policy_of(struct fsdp_module *unit)
{
    return unit->leader != NULL ? &unit->leader->policy : &unit->policy;
}

#define FOR_UNITS(unit, root, recurse)                                                                       \
    for (struct fsdp_module *unit = next_unit(root, NULL, recurse); unit != NULL;                            \
         unit = next_unit(root, unit, recurse))

void fsdp_module_set_reshard_after_forward(struct fsdp_module *module, bool reshard, bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->reshard_after_forward = reshard ? FSDP_RESHARD_TRUE : FSDP_RESHARD_FALSE;
}

void fsdp_module_set_reshard_after_backward(struct fsdp_module *module, bool reshard, bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->keep_after_backward = !reshard;
}

void fsdp_module_set_requires_gradient_sync(struct fsdp_module *module, bool requires_gradient_sync,
                                            bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->gradient_sync = requires_gradient_sync ? UNIT_SYNC_EVERY : UNIT_SYNC_LAST;
}

void fsdp_module_set_requires_all_reduce(struct fsdp_module *module, bool requires_all_reduce, bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->defers_all_reduce = !requires_all_reduce;
}

void fsdp_module_set_gradient_divide_factor(struct fsdp_module *module, double factor, bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->divide_factor = factor;
}

void fsdp_module_set_force_sum_reduction_for_comms(struct fsdp_module *module, bool force_sum, bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->force_sum = force_sum;
}

void fsdp_module_set_all_reduce_hook(struct fsdp_module *module, fsdp_all_reduce_hook_fn hook, void *user)
{
    FOR_UNITS(unit, module, false)
    {
        policy_of(unit)->hook = hook;
        policy_of(unit)->hook_user = user;
    }
}

void fsdp_module_set_reduce_scatter_unused_params(struct fsdp_module *module, bool reduce, bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->reduces_unused = reduce;
}
