/*
 * Two operations as one pass: a forward together with the next operation's, or a backward together with that
 * of the operation before it. Their entries must be neighbours. The first entry then does the work of both
 * and uses both entries' buffers (entry.c); the second does nothing.
 */
#include "shard_runtime/plan/plan.h"

static bool are_one_forward(const struct plan *plan, const struct plan_entry *e,
                            const struct plan_entry *next)
{
    return e->kind == PLAN_FORWARD && next->kind == PLAN_FORWARD && next->index == e->index + 1 &&
           e->op.again == next->op.again && e->when == next->when && plan->graph->ops[e->index]->fuses;
}

/* Does the backward by itself overwrite the gradient of its first input? */
static bool writes_input_grad(const struct plan_entry *e)
{
    return e->back.d_input[0] >= 0 && !e->back.add_d_input[0] && e->back.temporary[0] < 0;
}

/*
 * May the backwards of these two entries be one pass? The first must write the gradient between them, the
 * second must read it, and no other entry may use it.
 */
static bool are_one_backward(const struct plan *plan, const struct plan_entry *e,
                             const struct plan_entry *next)
{
    return e->kind == PLAN_BACKWARD && next->kind == PLAN_BACKWARD && next->index == e->index - 1 &&
           e->when == next->when && plan->graph->ops[e->index]->fuses_backward && writes_input_grad(e) &&
           writes_input_grad(next);
}

/*
 * Looks for the backward of the operation before the two. It comes next, not counting forwards that run again
 * for it. If it writes the gradient of a bias (its second parameter), the pass that begins at `entry` writes
 * that gradient.
 */
static void find_bias(struct plan *plan, int entry)
{
    struct plan_entry *e = &plan->entries[entry];
    int of = entry + 2;

    if (!plan->graph->ops[e->index]->leaves_bias)
        return;
    while (of < plan->n_entries && plan_runs_again(&plan->entries[of]))
        of++;
    if (of == plan->n_entries || plan->entries[of].kind != PLAN_BACKWARD ||
        plan->entries[of].index != e->index - 2 || plan->entries[of].when != e->when ||
        plan->entries[of].back.add_d_param[1] ||
        !plan->params[plan_param_index(plan, plan->graph->ops[e->index - 2]->params[1])].trains)
        return;
    e->back.bias_entry = of;
    plan->entries[of].back.bias_before = true;
}

enum fsdp_status plan_fuse_neighbours(struct plan *plan, struct fsdp_err *err)
{
    (void)err;
    for (int entry = 0; entry + 1 < plan->n_entries; entry++) {
        struct plan_entry *e = &plan->entries[entry], *next = e + 1;

        if (!plan_is_operation(e) || e->op.with_before ||
            !(are_one_forward(plan, e, next) || are_one_backward(plan, e, next)))
            continue;
        e->op.with_next = next->op.with_before = true;
        if (e->kind == PLAN_BACKWARD)
            find_bias(plan, entry);
    }
    return FSDP_OK;
}
