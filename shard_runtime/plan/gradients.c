/*
 * Gradient shards are in front of the arena, one group's behind the other's, where whoever measures or updates finds all of
 * them at once. They are there from their first write to the next step. Before that, unless they have what earlier micro-steps
 * left, their place is free: what forward keeps lies in it, and is used up by the time that backward writes a gradient there.
 * So a step needs little more than its gradients, or than its activations, whichever is more, in place of both.
 */
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/plan/plan.h"

enum { ALIGN_BYTES = 64 };

static size_t up(size_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* A group's shards while they are cut into buffers, in bytes of the arena: all before `at` are. */
struct cutter {
    struct plan *plan;
    int group;
    size_t at;
};

/* The bytes up to `until` as a buffer; its number, or -1: out of memory. */
static int cut(struct cutter *c, size_t until, bool step_long)
{
    struct plan *plan = c->plan;

    if (!alloc_room(&plan->buffers, &plan->buffers_room, (size_t)plan->n_buffers, sizeof *plan->buffers))
        return -1;
    plan->buffers[plan->n_buffers] = (struct plan_buffer){ .what = PLAN_GRAD_SHARDS,
                                                           .index = c->group,
                                                           .class = PLAN_GRADIENTS,
                                                           .size_bytes = until - c->at,
                                                           .step_long = step_long,
                                                           .fixed = true,
                                                           .storage = plan->n_buffers,
                                                           .offset = c->at };
    c->at = until;
    return plan->n_buffers++;
}

/*
 * What the program writes anew, bytes `from` to `until`: a buffer of as much of it as whole places for buffers are, *buffer. What
 * is left over at its ends stays what it is: whoever reads all shards at once expects zeros behind a row.
 */
static bool cut_free(struct cutter *c, size_t from, size_t until, int *buffer)
{
    from = up(from);
    until = until / ALIGN_BYTES * ALIGN_BYTES;
    if (from >= until)
        return true;
    if (from > c->at && cut(c, from, true) < 0)
        return false;
    *buffer = cut(c, until, false);
    return *buffer >= 0;
}

/* Is the gradient shard of the group final with one entry, which writes all of it? */
static bool writes_row(const struct plan *plan, int group)
{
    for (int entry = 0; entry < plan->n_entries; entry++) {
        const struct plan_entry *e = &plan->entries[entry];

        if (e->index == group &&
            ((e->kind == PLAN_REDUCE && e->into_shards) || (e->kind == PLAN_STORE && e->sum < 0)))
            return true;
    }
    return false;
}

static bool cut_group(struct plan *plan, int group, size_t row_bytes)
{
    struct plan_group *g = &plan->groups[group];
    const bool adds_up = plan->options.accumulates && !(g->reduces && g->accumulates_whole);
    const size_t begin = plan->gradient_bytes, end = begin + up(row_bytes);
    struct cutter c = { .plan = plan, .group = group, .at = begin };
    bool good = true;

    if (!adds_up && g->reduces && writes_row(plan, group))
        good = cut_free(&c, begin, begin + row_bytes, &g->grad_shards);
    for (int i = 0; i < g->n_params && !adds_up && !g->reduces && good;
         i++) { /* backward writes one by one */
        struct plan_param *param = &plan->params[g->params[i]];
        const size_t from = begin + param->grad_offset * sizeof(float);

        if (param->trains && param->has_grad)
            good = cut_free(&c, from, from + param->chunk_elems * sizeof(float), &param->grad_shards);
    }
    plan->gradient_bytes = end;
    return good && (c.at == end || cut(&c, end, true) >= 0);
}

enum fsdp_status plan_lay_gradients(struct plan *plan, struct fsdp_err *err)
{
    for (int g = 0; g < plan->n_groups && plan->options.holds_gradients; g++) {
        const size_t elems = plan->groups[g].grad_row_elems;
        size_t row_bytes, end;

        if (elems == 0 || plan->groups[g].offloads)
            continue;
        if (!checked_mul(elems, sizeof(float), &row_bytes) ||
            !checked_add(plan->gradient_bytes, row_bytes, &end) || end > (size_t)1 << 62)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "planning: the gradients do not fit an address space");
        if (!cut_group(plan, g, row_bytes))
            return fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
    }
    return FSDP_OK;
}
