/*
 * Which parameters travel together: those whose nearest unit of sharding is the same. Group numbers follow
 * the first visit of a unit in the recording; units that forward never visits keep their parameters and come
 * last.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/plan/plan.h"

enum { ALIGN_BYTES = 64 }; /* of a parameter in the whole buffer */

int plan_param_index(const struct plan *plan, const struct fsdp_parameter *parameter)
{
    for (int i = 0; i < plan->n_params; i++)
        if (plan->params[i].parameter == parameter)
            return i;
    return -1;
}

static int find_group(const struct plan *plan, const struct fsdp_module *unit)
{
    for (int g = 0; g < plan->n_groups; g++)
        if (plan->groups[g].unit == unit)
            return g;
    return -1;
}

static bool add_group(struct plan *plan, const struct fsdp_module *root, const struct fsdp_module *unit)
{
    if (find_group(plan, unit) >= 0)
        return true;
    if (!alloc_room(&plan->groups, &plan->groups_room, (size_t)plan->n_groups, sizeof *plan->groups))
        return false;
    plan->groups[plan->n_groups++] = (struct plan_group){
        .unit = unit,
        .reshard_after_forward = unit->policy.reshard_after_forward == FSDP_RESHARD_TRUE ||
                                 (unit->policy.reshard_after_forward == FSDP_RESHARD_AUTO && unit != root),
        .keep_after_backward = unit->policy.keep_after_backward,
        .kept = -1,
        .param_dtype = module_param_dtype(unit),
        .reduce_dtype = module_reduce_dtype(unit),
    };
    return true;
}

static bool find_units(struct plan *plan, const struct fsdp_module *root)
{
    for (size_t i = 0; i < plan->graph->n_visits; i++)
        if (!add_group(plan, root, plan->graph->visits[i].unit))
            return false;
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        if (m->sharded && !add_group(plan, root, m))
            return false;
    return true;
}

static size_t count_params(const struct fsdp_module *root)
{
    size_t n = 0;

    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        n += m->n_parameters;
    return n;
}

/* Give `param` its place in its group's rows and in the whole buffer. */
static bool append_param(struct plan *plan, int index)
{
    struct plan_param *param = &plan->params[index];
    struct plan_group *group = &plan->groups[param->group];
    const size_t rows = plan->options.chunk_rows(param->parameter->shape[0], plan->options.W);
    const size_t whole_align = ALIGN_BYTES / fsdp_dtype_size(group->param_dtype);
    size_t whole_elems, padded;

    if (!checked_mul(rows, param->parameter->row_elems, &param->chunk_elems) ||
        !checked_mul(param->chunk_elems, (size_t)plan->options.W * sizeof(float) * 4, &padded))
        return false;
    param->row_offset = group->row_elems;
    group->row_elems += param->chunk_elems;
    whole_elems = group->whole_bytes / fsdp_dtype_size(group->param_dtype);
    param->whole_offset = whole_elems;
    whole_elems += (param->parameter->n_elems + whole_align - 1) / whole_align * whole_align;
    group->whole_bytes = whole_elems * fsdp_dtype_size(group->param_dtype);
    group->params[group->n_params++] = index;
    return true;
}

static bool syncs_every(const struct plan *plan, const struct unit_policy *policy)
{
    return policy->gradient_sync == UNIT_SYNC_AS_MODEL ? plan->options.gradient_sync == FSDP_SYNC_EVERY
                                                       : policy->gradient_sync == UNIT_SYNC_EVERY;
}

/*
 * Whole gradients are param_dtype, as backward makes them. What adds up over micro-steps before it is reduced is
 * float32 if either dtype is: FSDP2 accumulates in reduce_dtype, which gives up bits where that is bfloat16 alone.
 */
static void decide_travel(const struct plan *plan, struct plan_group *group)
{
    const struct unit_policy *policy = &group->unit->policy;
    const bool widest = group->param_dtype == FSDP_F32 || group->reduce_dtype == FSDP_F32;

    group->gathers = group->n_params > 0 && (plan->options.W > 1 || group->param_dtype != FSDP_F32);
    group->division = plan_divide(plan->options.W, plan->options.R, policy->divide_factor, policy->force_sum);
    group->reduces =
        group->n_params > 0 && (plan->options.W > 1 || plan->options.R > 1 || policy->hook != NULL ||
                                group->division.before * group->division.after != 1.0f);
    group->accumulates_whole = plan->options.accumulates && !syncs_every(plan, policy);
    group->grad_dtype = group->accumulates_whole ? (widest ? FSDP_F32 : FSDP_BF16) : group->param_dtype;
}

enum fsdp_status plan_form_groups(struct plan *plan, const struct fsdp_module *root, struct fsdp_err *err)
{
    const size_t n_params = count_params(root);

    plan->params = alloc_array(n_params, sizeof *plan->params);
    if (plan->params == NULL || !find_units(plan, root))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
    for (int g = 0; g < plan->n_groups; g++) {
        plan->groups[g].params = alloc_array(n_params, sizeof(int));
        if (plan->groups[g].params == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
    }
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m)) {
        const int group = find_group(plan, module_unit(m));

        for (size_t i = 0; i < m->n_parameters; i++) {
            const int index = plan->n_params++;

            plan->params[index] =
                (struct plan_param){ .parameter = m->parameters[i], .group = group, .grad = -1 };
            if (!append_param(plan, index))
                return fsdp_fail(err, FSDP_ERR_ARG, "\"%s\" is too large", m->parameters[i]->name);
        }
    }
    for (int g = 0; g < plan->n_groups; g++)
        decide_travel(plan, &plan->groups[g]);
    return FSDP_OK;
}
