/*
 * Operations that are one pass: a forward that can be run with the one behind it, or a backward with that of the operation
 * before it, where nothing is between the two. The first entry then uses the second's buffers as well (access.c), and the second
 * does nothing.
 */
#include "shard_runtime/plan/plan.h"

static bool are_one_forward(const struct plan *plan, const struct plan_entry *e,
                            const struct plan_entry *next)
{
    return e->kind == PLAN_FORWARD && next->kind == PLAN_FORWARD && next->index == e->index + 1 &&
           e->again == next->again && e->when == next->when && plan->graph->ops[e->index]->fuses;
}

static bool writes_input_grad(const struct plan_entry *e)
{
    return e->wants_d_input[0] && !e->add_d_input[0] && e->temporary[0] < 0;
}

/* What is between them is nobody else's: written by the first, read by the second, which writes what it gives. */
static bool are_one_backward(const struct plan *plan, const struct plan_entry *e,
                             const struct plan_entry *next)
{
    return e->kind == PLAN_BACKWARD && next->kind == PLAN_BACKWARD && next->index == e->index - 1 &&
           e->when == next->when && plan->graph->ops[e->index]->fuses_backward && writes_input_grad(e) &&
           writes_input_grad(next);
}

/* The backward of the operation before both, where it writes the gradient of its second parameter: what is made again for its sake
 * may stand in front of it. */
static void find_bias(struct plan *plan, int entry)
{
    struct plan_entry *e = &plan->entries[entry];
    int of = entry + 2;

    if (!plan->graph->ops[e->index]->leaves_bias)
        return;
    while (of < plan->n_entries && plan->entries[of].kind == PLAN_FORWARD && plan->entries[of].again)
        of++;
    if (of == plan->n_entries || plan->entries[of].kind != PLAN_BACKWARD ||
        plan->entries[of].index != e->index - 2 || plan->entries[of].when != e->when ||
        plan->entries[of].add_d_param[1] ||
        !plan->params[plan_param_index(plan, plan->graph->ops[e->index - 2]->params[1])].trains)
        return;
    e->bias_of = of;
    plan->entries[of].bias_before = true;
}

void plan_fuse_neighbours(struct plan *plan)
{
    for (int entry = 0; entry + 1 < plan->n_entries; entry++) {
        struct plan_entry *e = &plan->entries[entry], *next = e + 1;

        if (e->with_before || !(are_one_forward(plan, e, next) || are_one_backward(plan, e, next)))
            continue;
        e->with_next = next->with_before = true;
        if (e->kind == PLAN_BACKWARD)
            find_bias(plan, entry);
    }
}
