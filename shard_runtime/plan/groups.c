/*
 * Decides which parameters are gathered and reduced together: those whose nearest unit of sharding is the
 * same, or is in the same list. Groups are numbered in the order in which the recording first visits them.
 * Then come units that forward never visits; their parameters are never gathered. The ignored parameters form
 * the last group, which is never gathered or reduced.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/plan/plan.h"

enum { ROW_BYTES = 16 }; /* a gathered row that has codes is a multiple of this */

int plan_param_index(const struct plan *plan, const struct fsdp_parameter *parameter)
{
    for (int i = 0; i < plan->n_params; i++)
        if (plan->params[i].parameter == parameter)
            return i;
    return -1;
}

static int find_group(const struct plan *plan, const struct fsdp_module *group, bool local)
{
    for (int g = 0; g < plan->n_groups; g++)
        if (plan->groups[g].unit == group && plan->groups[g].local == local)
            return g;
    return -1;
}

/* Counts the modules in the group's list. */
static int count_units(const struct fsdp_module *root, const struct fsdp_module *group)
{
    int n = 0;

    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        n += m->sharded && module_group(m) == group;
    return n;
}

/* Append the group of a unit, unless it is there; `local`: the ignored parameters. False: out of memory. */
static bool add_group(struct plan *plan, const struct fsdp_module *root, const struct fsdp_module *group,
                      bool local)
{
    const enum fsdp_reshard reshard = group->policy.reshard_after_forward;
    int W = plan->options.W, R = plan->options.R;

    if (plan->options.ranks_of != NULL)
        plan->options.ranks_of(plan->options.ranks_user, group, &W, &R);
    if (find_group(plan, group, local) >= 0)
        return true;
    if (!alloc_room(&plan->groups, &plan->groups_room, (size_t)plan->n_groups, sizeof *plan->groups))
        return false;
    plan->groups[plan->n_groups++] = (struct plan_group){
        .unit = group,
        .n_units = count_units(root, group),
        .local = local,
        .W = local ? 1 : W,
        .R = local ? 1 : R,
        .k = reshard == FSDP_RESHARD_TO && !local ? group->policy.reshard_size : 0,
        .reshard_after_forward = reshard == FSDP_RESHARD_TRUE || reshard == FSDP_RESHARD_TO ||
                                 (reshard == FSDP_RESHARD_AUTO && group != root),
        .keep_after_backward = group->policy.keep_after_backward,
        .amax_parts = 1,
        .kept = -1,
        .grad_shards = -1,
        .param_dtype = local ? FSDP_F32 : group_param_dtype(group),
        .reduce_dtype = local ? FSDP_F32 : group_reduce_dtype(group),
    };
    return true;
}

static bool any_ignored(const struct fsdp_module *root)
{
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        for (size_t i = 0; i < m->n_parameters; i++)
            if (m->parameters[i]->ignored)
                return true;
    return false;
}

/* Append all groups, in the order above. False: out of memory. */
static bool find_units(struct plan *plan, const struct fsdp_module *root)
{
    for (size_t i = 0; i < plan->graph->n_visits; i++)
        if (!add_group(plan, root, module_group(plan->graph->visits[i].unit), false))
            return false;
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        if (m->sharded && !add_group(plan, root, module_group(m), false))
            return false;
    return !any_ignored(root) || add_group(plan, root, root, true);
}

static size_t count_params(const struct fsdp_module *root)
{
    size_t n = 0;

    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        n += m->n_parameters;
    return n;
}

/*
 * Does backward never read the parameter? Then its part of the whole parameters is freed when forward is
 * done. Groups that stay whole from one micro-step to the next have one part. Plans of training and of
 * evaluation have the same parts.
 */
static bool is_forward_only(const struct plan *plan, const struct plan_group *group,
                            const struct fsdp_parameter *parameter)
{
    if (group->keep_after_backward)
        return false;
    for (size_t o = 0; o < plan->graph->n_ops; o++)
        for (int i = 0; i < plan->graph->ops[o]->n_params; i++)
            if (plan->graph->ops[o]->params[i] == parameter &&
                plan->graph->ops[o]->kind->backward_reads_params)
                return false;
    return true;
}

/*
 * Returns the number of elements after the parameter that products read as zeros: the largest number of all
 * operations that use it.
 */
static size_t zeros_behind(const struct plan *plan, const struct fsdp_parameter *parameter)
{
    size_t most = 0;

    for (size_t o = 0; o < plan->graph->n_ops; o++) {
        const struct graph_op *op = plan->graph->ops[o];
        const size_t elems = op->n_params > 0 && op->params[0] == parameter
                                 ? graph_zero_rows(op) * op->inputs[0]->features
                                 : 0;

        most = elems > most ? elems : most;
    }
    return most;
}

/* Gives parameter `index` its place in its group's rows and in its part of the whole parameters. */
static enum fsdp_status append_param(struct plan *plan, int index, struct fsdp_err *err)
{
    struct plan_param *param = &plan->params[index];
    const struct fsdp_parameter *p = param->parameter;
    struct plan_group *group = &plan->groups[param->group];
    const size_t rows = plan->options.chunk_rows(p->shape[p->shard_dim], group->W);
    const size_t elem_size = fsdp_dtype_size(group->param_dtype);
    size_t padded;

    if (p->shard_dim > 0 && p->shape[p->shard_dim] % (size_t)group->W != 0)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "\"%s\" is cut along dimension %d, whose %zu rows %d ranks do not divide evenly",
                         p->name, p->shard_dim, p->shape[p->shard_dim], group->W);
    if (!checked_mul(rows, p->n_elems / p->shape[p->shard_dim], &param->chunk_elems) ||
        !checked_mul(param->chunk_elems, (size_t)group->W * sizeof(float) * 4, &padded))
        return fsdp_fail(err, FSDP_ERR_ARG, "\"%s\" is too large", p->name);
    param->row_offset = group->row_elems;
    group->row_elems += param->chunk_elems;
    param->part = is_forward_only(plan, group, p) ? PLAN_FORWARD_ONLY : PLAN_BOTH_WAYS;
    param->whole_offset = group->whole_bytes[param->part] / elem_size;
    param->zero_elems = zeros_behind(plan, p);
    group->whole_bytes[param->part] += plan_align((p->n_elems + param->zero_elems) * elem_size);
    if (group->k > 0)
        param->slice_chunk = plan->options.chunk_rows(p->shape[p->shard_dim], group->k) *
                             (p->n_elems / p->shape[p->shard_dim]);
    param->coded = parameter_is_coded(p) ? group->n_coded++ : -1;
    if (param->coded >= 0 && p->split.n_parts > group->amax_parts)
        group->amax_parts = p->split.n_parts;
    group->params[group->n_params++] = index;
    return FSDP_OK;
}

/*
 * Place each parameter in a row that is gathered: first those of param_dtype in the tree's order, then the
 * codes, so that all are aligned. A row that has codes is a multiple of 16 bytes.
 */
static void place_rows(const struct plan *plan, struct plan_group *group)
{
    size_t *const ends[2] = { &group->gather_row_bytes, &group->slice_row_bytes };

    for (int coded = 0; coded < 2; coded++)
        for (int i = 0; i < group->n_params; i++) {
            struct plan_param *param = &plan->params[group->params[i]];
            const size_t size = coded ? 1 : fsdp_dtype_size(group->param_dtype);

            if ((param->coded >= 0) != (coded == 1))
                continue;
            param->gather_at = *ends[0];
            param->slice_at = *ends[1];
            *ends[0] += param->chunk_elems * size;
            *ends[1] += param->slice_chunk * size;
        }
    for (int row = 0; row < 2 && group->n_coded > 0; row++)
        *ends[row] = round_up(*ends[row], ROW_BYTES);
}

/*
 * Place the gradients in rows of their own: frozen and unused parameters are gathered, but have no gradient.
 */
static enum fsdp_status place_gradients(struct plan *plan, struct fsdp_err *err)
{
    bool *reached = alloc_array((size_t)plan->n_params, sizeof *reached);
    enum fsdp_status status;

    if (reached == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
    status = plan_find_reached(plan, reached, err);
    for (int i = 0; i < plan->n_params && status == FSDP_OK; i++) {
        struct plan_param *param = &plan->params[i];
        struct plan_group *group = &plan->groups[param->group];

        param->trains = reached[i] || (group->unit->policy.reduces_unused && !param->parameter->frozen);
        if (!param->trains)
            continue;
        param->grad_offset = group->grad_row_elems;
        group->grad_row_elems += param->chunk_elems;
    }
    free(reached);
    return status;
}

/* Are the unit's gradients reduced in every micro-step? */
static bool syncs_every(const struct plan *plan, const struct unit_policy *policy)
{
    return policy->gradient_sync == UNIT_SYNC_AS_MODEL ? plan->options.gradient_sync == FSDP_SYNC_EVERY
                                                       : policy->gradient_sync == UNIT_SYNC_EVERY;
}

/*
 * Decide how the group's parameters and gradients travel. Whole gradients are param_dtype, as backward makes
 * them. If they add up over micro-steps before they are reduced, they are float32 unless both dtypes are
 * bfloat16. FSDP2 accumulates in reduce_dtype, which loses bits if that one alone is bfloat16.
 */
static void decide_travel(const struct plan *plan, struct plan_group *group)
{
    const struct unit_policy *policy = &group->unit->policy;
    const bool widest = group->param_dtype == FSDP_F32 || group->reduce_dtype == FSDP_F32;

    bool changes; /* does the reduction change values that backward has made? */

    group->offloads = plan->options.host_apart && policy->offload == FSDP_OFFLOAD_CPU && !group->local;
    group->gathers = group->n_params > 0 && (group->W > 1 || group->param_dtype != FSDP_F32 ||
                                             group->offloads || group->n_coded > 0);
    group->division = plan_divide(group->W, group->R, policy->divide_factor, policy->force_sum);
    changes = group->W > 1 || group->R > 1 || policy->hook != NULL ||
              group->division.before * group->division.after != 1.0f;
    group->reduces = group->grad_row_elems > 0 && !group->local && (changes || group->offloads);
    group->accumulates_whole = plan->options.accumulates && !syncs_every(plan, policy);
    group->grad_dtype = group->accumulates_whole ? (widest ? FSDP_F32 : FSDP_BF16) : group->param_dtype;
    if (!changes && group->offloads) /* shards that offload are only copied, as float32 */
        group->grad_dtype = group->reduce_dtype = FSDP_F32;
}

/*
 * Slices over 1 rank mean that nothing is freed. Slices over W ranks are the shards, which are there anyway.
 */
static enum fsdp_status settle_slices(struct plan_group *group, struct fsdp_err *err)
{
    if (group->k == 0)
        return FSDP_OK;
    if (group->W % group->k != 0)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "\"%s\" is resharded to %d ranks after forward, which do not divide %d",
                         group->unit->path, group->k, group->W);
    if (group->k == 1)
        group->reshard_after_forward = false;
    if (group->k == 1 || group->k == group->W)
        group->k = 0;
    return FSDP_OK;
}

enum fsdp_status plan_form_groups(struct plan *plan, const struct fsdp_module *root, struct fsdp_err *err)
{
    const size_t n_params = count_params(root);

    plan->params = alloc_array(n_params, sizeof *plan->params);
    if (plan->params == NULL || !find_units(plan, root))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
    for (int g = 0; g < plan->n_groups; g++) {
        if (settle_slices(&plan->groups[g], err) != FSDP_OK)
            return FSDP_ERR_ARG;
        plan->groups[g].params = alloc_array(n_params, sizeof(int));
        if (plan->groups[g].params == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
    }
    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m)) {
        for (size_t i = 0; i < m->n_parameters; i++) {
            const bool ignored = m->parameters[i]->ignored;
            const int index = plan->n_params++;

            plan->params[index] =
                (struct plan_param){ .parameter = m->parameters[i],
                                     .group = find_group(plan, ignored ? root : module_group(m), ignored),
                                     .grad_shards = -1 };
            OK_OR_RETURN(append_param(plan, index, err));
        }
    }
    if (place_gradients(plan, err) != FSDP_OK)
        return FSDP_ERR_NOMEM;
    plan->reduce_buffers = 1;
    for (int g = 0; g < plan->n_groups; g++) {
        place_rows(plan, &plan->groups[g]);
        decide_travel(plan, &plan->groups[g]);
        if (plan->groups[g].unit->policy.reduce_buffers > plan->reduce_buffers)
            plan->reduce_buffers = plan->groups[g].unit->policy.reduce_buffers;
    }
    return FSDP_OK;
}
