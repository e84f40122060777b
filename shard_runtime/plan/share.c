/*
 * Finds buffers that can share one place:
 *   - an output may replace its input if no entry reads the input again;
 *   - a copy, such as the gradient of a sum's term, may share with its source if the two never differ while
 *     both are read. So the gradient of a residual stream, which is L copies on paper, becomes one buffer.
 *
 * Every buffer has one first write; later writes add to it. Buffers that share a place form a class, which is
 * named by its `storage`. This is the copy coalescing of register allocation (Chaitin et al., "Register
 * allocation via coloring", 1981). The test is on values instead of live ranges, because buffers of equal
 * contents may live at the same time.
 */
#include <limits.h>
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/plan/plan.h"

/* The accesses of each class as linked lists; -1 ends a list, and stands for an empty one. */
struct sharing {
    struct plan *plan;
    int *first, *last; /* first and last access of each storage */
    int *next;         /* the access after each access */
};

/* The buffer that names the class of `buffer`. */
static int storage_of(const struct plan *plan, int buffer)
{
    while (plan->buffers[buffer].storage != buffer)
        buffer = plan->buffers[buffer].storage;
    return buffer;
}

struct uses {
    /* numbers of entries; first_write_after is INT_MAX if no entry writes after the given one */
    int first, last, first_write_after;
};

/* Finds when the class is used, and when it is first written after `entry`. */
static struct uses find_uses(const struct sharing *sharing, int storage, int entry)
{
    struct uses uses = { .first = INT_MAX, .last = -1, .first_write_after = INT_MAX };

    for (int a = sharing->first[storage]; a >= 0; a = sharing->next[a]) {
        const struct plan_access *access = &sharing->plan->accesses[a];

        if (access->entry < uses.first)
            uses.first = access->entry;
        if (access->entry > uses.last)
            uses.last = access->entry;
        if (access->writes && access->entry > entry && access->entry < uses.first_write_after)
            uses.first_write_after = access->entry;
    }
    return uses;
}

/* Make the class of `to` part of the class of `from`. */
static void join(struct sharing *sharing, int from, int to)
{
    sharing->plan->buffers[to].storage = from;
    if (sharing->first[to] < 0)
        return;
    if (sharing->first[from] < 0)
        sharing->first[from] = sharing->first[to];
    else
        sharing->next[sharing->last[from]] = sharing->first[to];
    sharing->last[from] = sharing->last[to];
}

/*
 * `entry` writes buffer `to` first, from buffer `from`. Give `to` the place of `from` if no result changes by
 * that. With same_value the entry only copies. Returns whether they share. -1 for either buffer is allowed,
 * and shares nothing.
 */
static bool try_share(struct sharing *sharing, int entry, int from, int to, bool same_value)
{
    struct plan *plan = sharing->plan;
    struct uses a, b;

    if (from < 0 || to < 0)
        return false;
    from = storage_of(plan, from);
    to = storage_of(plan, to);
    if (from == to || plan->buffers[from].size_bytes != plan->buffers[to].size_bytes ||
        plan->buffers[from].step_long || plan->buffers[to].step_long)
        return false;
    a = find_uses(sharing, from, entry);
    b = find_uses(sharing, to, entry);
    if (b.first != entry)
        return false;
    if (!same_value && a.last > entry)
        return false; /* the input is read later */
    /* The two are equal until one of them is written again. From then on no entry may read the other one. */
    if (same_value && (a.first_write_after <= b.last || b.first_write_after <= a.last))
        return false;
    join(sharing, from, to);
    return true;
}

static void share_forward(struct sharing *sharing, int entry)
{
    const struct plan *plan = sharing->plan;
    const struct plan_entry *e = &plan->entries[entry];
    const struct graph_op *op = plan->graph->ops[e->index];

    if (op->kind->output_is_input && try_share(sharing, entry, e->op.input[0], e->op.output, true))
        return;
    for (int i = op->n_inputs - 1; i >= 0; i--)
        if (op->kind->forward_in_place[i] && try_share(sharing, entry, e->op.input[i], e->op.output, false))
            return;
}

/*
 * Is the gradient of input `i` the gradient of no other input? x + x writes the gradient of x twice, and the
 * second time adds.
 */
static bool written_once(const struct plan_entry *e, int n_inputs, int i)
{
    for (int j = 0; j < n_inputs; j++)
        if (j != i && e->back.d_input[j] == e->back.d_input[i])
            return false;
    return true;
}

static void share_backward(struct sharing *sharing, int entry)
{
    const struct plan *plan = sharing->plan;
    const struct plan_entry *e = &plan->entries[entry];
    const struct graph_op *op = plan->graph->ops[e->index];

    if (e->op.with_before) { /* the entry before does all the work of this one */
        if (op->kind->grad_in_place)
            try_share(sharing, entry - 1, e->back.d_output, e->back.d_input[0], false);
        return;
    }
    for (int i = 0; i < op->n_inputs; i++)
        if (!e->back.add_d_input[i] && op->kind->grad[i] == GRAPH_GRAD_COPY &&
            written_once(e, op->n_inputs, i))
            try_share(sharing, entry, e->back.d_output, e->back.d_input[i], true);
    if (op->kind->grad_in_place && !e->back.add_d_input[0])
        try_share(sharing, entry, e->back.d_output, e->back.d_input[0], false);
}

static void list_accesses(struct sharing *sharing)
{
    const struct plan *plan = sharing->plan;

    for (int b = 0; b < plan->n_buffers; b++)
        sharing->first[b] = sharing->last[b] = -1;
    for (int a = 0; a < plan->n_accesses; a++) {
        const int storage = storage_of(plan, plan->accesses[a].buffer);

        sharing->next[a] = -1;
        if (sharing->first[storage] < 0)
            sharing->first[storage] = a;
        else
            sharing->next[sharing->last[storage]] = a;
        sharing->last[storage] = a;
    }
}

enum fsdp_status plan_share_buffers(struct plan *plan, struct fsdp_err *err)
{
    struct sharing sharing = { .plan = plan,
                               .first = alloc_array((size_t)plan->n_buffers, sizeof(int)),
                               .last = alloc_array((size_t)plan->n_buffers, sizeof(int)),
                               .next = alloc_array((size_t)plan->n_accesses, sizeof(int)) };
    enum fsdp_status status = FSDP_OK;

    if (sharing.first == NULL || sharing.last == NULL || sharing.next == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
        goto done;
    }
    list_accesses(&sharing);
    for (int entry = 0; entry < plan->n_entries; entry++) {
        const struct plan_entry *e = &plan->entries[entry];

        if (e->kind == PLAN_FORWARD)
            share_forward(&sharing, entry);
        else if (e->kind == PLAN_BACKWARD)
            share_backward(&sharing, entry);
        else if (e->kind == PLAN_LOSS)
            try_share(&sharing, entry, e->loss.logits, e->loss.d_logits, false);
    }
    for (int b = 0; b < plan->n_buffers; b++)
        plan->buffers[b].storage = storage_of(plan, b);
done:
    free(sharing.first);
    free(sharing.last);
    free(sharing.next);
    return status;
}
