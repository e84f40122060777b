/*
 * The methods of a sharded module. Each one sets a field of the unit's policy; with `recurse`, also of all
 * units below.
 */
#include <fsdp/fully_shard.h>

#include <float.h>
#include <stdint.h>
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/module.h"

/*
 * Returns the unit after `module` (NULL: the first) at or below `root`; without `recurse`, only `root`
 * itself.
 */
static struct fsdp_module *next_unit(struct fsdp_module *root, struct fsdp_module *module, bool recurse)
{
    const struct fsdp_module *m = module;

    if (root == NULL)
        return NULL;
    do
        m = m == NULL ? root : recurse ? module_next(root, m) : NULL;
    while (m != NULL && !m->sharded);
    return (struct fsdp_module *)(uintptr_t)m; /* `root` is not const, so neither is its tree */
}

/* Returns the unit's policy. Modules that form one group share the policy of the first of them. */
static struct unit_policy *policy_of(struct fsdp_module *unit)
{
    return unit->leader != NULL ? &unit->leader->policy : &unit->policy;
}

/* Returns the first unit for a setter. If there is none, the tree keeps an error that names `setter`. */
static struct fsdp_module *first_unit(struct fsdp_module *root, bool recurse, const char *setter)
{
    struct fsdp_module *unit = next_unit(root, NULL, recurse);

    if (unit == NULL)
        module_fail(root, FSDP_ERR_ARG, "%s: \"%s\" is no unit of sharding%s: call fsdp_fully_shard() first",
                    setter, root != NULL ? root->path : "", recurse ? ", nor is any module below it" : "");
    return unit;
}

#define FOR_UNITS(unit, root, recurse)                                                                       \
    for (struct fsdp_module *unit = first_unit(root, recurse, __func__); unit != NULL;                       \
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
    if (!(factor >= 0 && factor <= DBL_MAX)) {
        module_fail(module, FSDP_ERR_ARG, "%s: %g for \"%s\" is no number from 0 on", __func__, factor,
                    fsdp_module_path(module));
        return;
    }
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

void fsdp_module_set_custom_all_gather(struct fsdp_module *module, fsdp_all_gather_fn fn, void *user)
{
    FOR_UNITS(unit, module, false)
    {
        policy_of(unit)->all_gather = fn;
        policy_of(unit)->all_gather_user = user;
    }
}

void fsdp_module_set_custom_reduce_scatter(struct fsdp_module *module, fsdp_reduce_scatter_fn fn, void *user)
{
    FOR_UNITS(unit, module, false)
    {
        policy_of(unit)->reduce_scatter = fn;
        policy_of(unit)->reduce_scatter_user = user;
    }
}

void fsdp_module_set_reduce_scatter_unused_params(struct fsdp_module *module, bool reduce, bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->reduces_unused = reduce;
}

static enum fsdp_status set_prefetch(struct fsdp_module *module, int pass, struct fsdp_module *const *units,
                                     size_t n_units, struct fsdp_err *err)
{
    struct unit_list *list;
    struct fsdp_module **copy;

    if (module == NULL || !module->sharded)
        return fsdp_fail(err, FSDP_ERR_ARG, "prefetching: \"%s\" is no unit of sharding",
                         module != NULL ? module->path : "");
    if (units == NULL && n_units > 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "prefetching for \"%s\": the list of units is NULL",
                         module->path);
    for (size_t i = 0; i < n_units; i++)
        if (units[i] == NULL || !units[i]->sharded || units[i]->root != module->root)
            return fsdp_fail(err, FSDP_ERR_ARG, "prefetching for \"%s\": \"%s\" is no unit of its tree",
                             module->path, units[i] != NULL ? units[i]->path : "");
    copy = alloc_array(n_units, sizeof(void *));
    if (copy == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "prefetching: out of memory");
    for (size_t i = 0; i < n_units; i++)
        copy[i] = units[i];
    list = &policy_of(module)->prefetch[pass];
    free(list->units);
    *list = (struct unit_list){ .units = copy, .n_units = n_units };
    return FSDP_OK;
}

enum fsdp_status fsdp_module_set_modules_to_forward_prefetch(struct fsdp_module *module,
                                                             struct fsdp_module *const *units, size_t n_units,
                                                             struct fsdp_err *err)
{
    return set_prefetch(module, 0, units, n_units, err);
}

enum fsdp_status fsdp_module_set_modules_to_backward_prefetch(struct fsdp_module *module,
                                                              struct fsdp_module *const *units,
                                                              size_t n_units, struct fsdp_err *err)
{
    return set_prefetch(module, 1, units, n_units, err);
}

void fsdp_module_set_unshard_in_backward(struct fsdp_module *module, bool unshard)
{
    FOR_UNITS(unit, module, false)
    policy_of(unit)->not_in_backward = !unshard;
}

enum fsdp_status fsdp_module_set_reduce_scatter_max_input_buffers(struct fsdp_module *module, int n_buffers,
                                                                  bool recurse, struct fsdp_err *err)
{
    if (n_buffers < 1)
        return fsdp_fail(err, FSDP_ERR_ARG, "%d buffers of gradients in flight: at least 1", n_buffers);
    if (next_unit(module, NULL, recurse) == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "%s: \"%s\" is no unit of sharding", __func__,
                         fsdp_module_path(module));
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->reduce_buffers = n_buffers;
    return FSDP_OK;
}

void fsdp_module_set_separate_reduce_scatter_group(struct fsdp_module *module, bool enable, bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    policy_of(unit)->separate_reduces = enable;
}

void fsdp_module_register_post_accumulate_grad_hook(struct fsdp_module *module,
                                                    fsdp_post_accumulate_grad_hook_fn hook, void *user,
                                                    bool recurse)
{
    FOR_UNITS(unit, module, recurse)
    {
        policy_of(unit)->post_hook = hook;
        policy_of(unit)->post_hook_user = user;
    }
}
