/*
 * Gradient shards are at the beginning of the arena, one group's after the other's. So the norm and the
 * optimizer find all of them in one block. They live from their first write to the next step.
 *
 * Before that first write their place is free, unless earlier micro-steps left sums in it. Activations of
 * forward use it: they have been read by the time that backward writes a gradient there. So a step needs
 * little more than the larger of its gradients and its activations, instead of both.
 */
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/plan/plan.h"

/* Cuts a group's shards into buffers, from the front: all bytes of the arena before `at` are in buffers. */
struct cutter {
    struct plan *plan;
    int group;
    size_t at;
};

/* Makes a buffer of the bytes up to `until`. Returns its number; -1: out of memory. */
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
 * The program overwrites the bytes `from` to `until`. Make *buffer of those that fill whole places for
 * buffers; other buffers may use these before. The rest, at both ends, is never free: readers of the whole
 * block expect zeros after a row. *buffer is unchanged if there is no whole place. Returns false if memory
 * ran out.
 */
static bool cut_free(struct cutter *c, size_t from, size_t until, int *buffer)
{
    from = plan_align(from);
    until = until / PLAN_ALIGN_BYTES * PLAN_ALIGN_BYTES;
    if (from >= until)
        return true;
    if (from > c->at && cut(c, from, true) < 0)
        return false;
    *buffer = cut(c, until, false);
    return *buffer >= 0;
}

/* Does one entry write all of the group's gradient shards? */
static bool writes_row(const struct plan *plan, int group)
{
    for (int entry = 0; entry < plan->n_entries; entry++) {
        const struct plan_entry *e = &plan->entries[entry];

        if (e->index == group && ((e->kind == PLAN_REDUCE && e->reduce.into_shards) ||
                                  (e->kind == PLAN_STORE && e->store.sum < 0)))
            return true;
    }
    return false;
}

/* Append the group's shards to the block, cut into buffers. False: out of memory. */
static bool cut_group(struct plan *plan, int group, size_t row_bytes)
{
    struct plan_group *g = &plan->groups[group];
    const bool adds_up = plan->options.accumulates && !(g->reduces && g->accumulates_whole);
    const size_t begin = plan->gradient_bytes, end = begin + plan_align(row_bytes);
    struct cutter c = { .plan = plan, .group = group, .at = begin };
    bool good = true;

    if (!adds_up && g->reduces && writes_row(plan, group))
        good = cut_free(&c, begin, begin + row_bytes, &g->grad_shards);
    for (int i = 0; i < g->n_params && !adds_up && !g->reduces && good;
         i++) { /* backward writes them one by one */
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
