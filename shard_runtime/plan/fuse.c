/*
 * Forwards that are one pass: an operation that can be run with the one behind it, where nothing is between the two. The
 * first entry then uses the second's buffers as well (access.c), and the second does nothing.
 */
#include "shard_runtime/plan/plan.h"

static bool are_one(const struct plan *plan, const struct plan_entry *e, const struct plan_entry *next)
{
    return e->kind == PLAN_FORWARD && next->kind == PLAN_FORWARD && next->index == e->index + 1 &&
           e->again == next->again && e->when == next->when && plan->graph->ops[e->index]->fuses;
}

void plan_fuse_neighbours(struct plan *plan)
{
    for (int entry = 0; entry + 1 < plan->n_entries; entry++) {
        struct plan_entry *e = &plan->entries[entry], *next = e + 1;

        if (!e->with_before && are_one(plan, e, next))
            e->with_next = next->with_before = true;
    }
}
