/*
 * Which entry reads and writes which buffer, read off the entries once: sharing, placing and the order of
 * streams all rest on this list.
 */
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/plan/plan.h"

struct lister {
    struct plan *plan;
    int entry;
    bool out_of_memory;
};

static void add(struct lister *l, int buffer, bool reads, bool writes)
{
    struct plan *plan = l->plan;

    if (buffer < 0 || l->out_of_memory)
        return;
    if (!alloc_room(&plan->accesses, &plan->accesses_room, (size_t)plan->n_accesses,
                    sizeof *plan->accesses)) {
        l->out_of_memory = true;
        return;
    }
    plan->accesses[plan->n_accesses++] =
        (struct plan_access){ .entry = l->entry, .buffer = buffer, .reads = reads, .writes = writes };
}

static void list_forward(struct lister *l, const struct plan_entry *e)
{
    for (int i = 0; i < GRAPH_MAX_INPUTS; i++)
        add(l, e->input[i], true, false);
    for (int i = 0; i < GRAPH_MAX_PARAMS; i++)
        add(l, e->params[i], true, false);
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        add(l, e->saved[i], false, true);
    add(l, e->scratch, false, true);
    add(l, e->output, false, true);
    if (e->with_next)
        list_forward(l, e + 1);
}

/* Gradients that backward writes where their shards are. */
static void list_own_gradients(struct lister *l, const struct plan_entry *e)
{
    const struct plan *plan = l->plan;
    const struct graph_op *op = plan->graph->ops[e->index];

    for (int i = 0; i < op->n_params && plan->options.holds_gradients; i++)
        add(l, plan->params[plan_param_index(plan, op->params[i])].grad_shards, e->add_d_param[i], true);
}

/* The gradient of a bias that an entry before `e`, whose own it is, leaves. */
static void list_bias(struct lister *l, const struct plan_entry *e)
{
    const struct plan *plan = l->plan;
    const struct graph_op *op = plan->graph->ops[e->index];

    add(l, e->d_param[1], false, true);
    if (plan->options.holds_gradients)
        add(l, plan->params[plan_param_index(plan, op->params[1])].grad_shards, false, true);
}

/* Of two that are one pass the first uses all buffers: what is between the two is only there where they are run apart after all. */
static void list_backward(struct lister *l, const struct plan_entry *e)
{
    add(l, e->d_output, true, false);
    add(l, e->output, true, false);
    for (int i = 0; i < GRAPH_MAX_INPUTS; i++) {
        add(l, e->input[i], true, false);
        add(l, e->d_input[i], e->add_d_input[i], true);
        add(l, e->temporary[i], false, true);
    }
    for (int i = 0; i < GRAPH_MAX_PARAMS; i++) {
        add(l, e->params[i], true, false);
        add(l, e->d_param[i], e->add_d_param[i], true);
    }
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        add(l, e->saved[i], true, false);
    add(l, e->scratch, false, true);
    list_own_gradients(l, e);
    if (e->with_next)
        list_backward(l, e + 1);
    if (e->bias_of >= 0)
        list_bias(l, &l->plan->entries[e->bias_of]);
}

/* The packed buffers of the reductions before this one, as many as may be in flight beside it: they are not reused. */
static void hold_packed(struct lister *l)
{
    int held = l->plan->reduce_buffers - 1;

    for (int before = l->entry - 1; before >= 0 && held > 0; before--)
        if (l->plan->entries[before].kind == PLAN_PACK) {
            add(l, l->plan->entries[before].packed, false, false);
            held--;
        }
}

static void list_pack(struct lister *l, const struct plan_entry *e)
{
    const struct plan_group *group = &l->plan->groups[e->index];

    for (int i = 0; i < group->n_params; i++)
        add(l, plan_grad(l->plan, e, group->params[i]), true, false);
    hold_packed(l);
    add(l, e->packed, false, true);
}

/* Was this rank's row of `gathered` copied in before? */
static bool gathers_in_place(const struct lister *l, const struct plan_entry *e)
{
    return l->plan->groups[e->index].offloads && e->shard < 0 && e->slice < 0;
}

static void list_entry(struct lister *l, const struct plan_entry *e)
{
    switch (e->kind) {
    case PLAN_COPY_IN:
        add(l, e->shard, false, true);
        add(l, e->gathered, false, true);
        add(l, e->sum, false, true);
        add(l, e->behind, false, true);
        break;
    case PLAN_AMAX:
        add(l, e->shard, true, false);
        add(l, e->amax, false, true);
        break;
    case PLAN_GATHER:
        add(l, e->amax, true, false);
        add(l, e->slice, true, false);
        add(l, e->shard, true, false);
        add(l, e->gathered, gathers_in_place(l, e), true);
        break;
    case PLAN_SLICE:
        add(l, e->amax, true, false);
        add(l, e->whole[PLAN_FORWARD_ONLY], true, false);
        add(l, e->whole[PLAN_BOTH_WAYS], true, false);
        add(l, e->slice, false, true);
        break;
    case PLAN_UNPACK:
        add(l, e->shard, true, false);
        add(l, e->amax, true, false);
        add(l, e->gathered, true, false);
        add(l, e->whole[PLAN_FORWARD_ONLY], false, true);
        add(l, e->whole[PLAN_BOTH_WAYS], false, true);
        break;
    case PLAN_RESHARD: /* the other part ended with its last use */
        add(l, e->whole[PLAN_BOTH_WAYS], true, false);
        break;
    case PLAN_FORWARD:
        list_forward(l, e);
        break;
    case PLAN_LOSS:
        add(l, e->input[0], true, false);
        add(l, e->d_output, false, true);
        break;
    case PLAN_BACKWARD:
        if (!e->with_before)
            list_backward(l, e);
        break;
    case PLAN_PACK:
        list_pack(l, e);
        break;
    case PLAN_REDUCE:
    case PLAN_ALL_REDUCE:
        add(l, e->packed, true, true);
        add(l, e->sum, true, true);
        add(l, e->behind, false, true);
        if (e->into_shards)
            add(l, l->plan->groups[e->index].grad_shards, false, true);
        break;
    case PLAN_STORE:
        add(l, e->packed, true, false);
        add(l, e->sum, e->adds, true);
        if (e->sum < 0)
            add(l, l->plan->groups[e->index].grad_shards, false, true);
        break;
    case PLAN_COPY_OUT:
        add(l, e->sum, true, false);
        add(l, e->packed, true, false);
        break;
    case PLAN_COMPLETE:
        add(l, e->behind, false,
            true); /* shards are not of the arena: what fills them is waited for by its source */
        break;
    }
}

enum fsdp_status plan_list_accesses(struct plan *plan, struct fsdp_err *err)
{
    struct lister l = { .plan = plan };

    for (l.entry = 0; l.entry < plan->n_entries; l.entry++) {
        struct plan_entry *e = &plan->entries[l.entry];

        e->first_access = plan->n_accesses;
        list_entry(&l, e);
        e->n_accesses = plan->n_accesses - e->first_access;
    }
    return l.out_of_memory ? fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory") : FSDP_OK;
}
