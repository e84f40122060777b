/*
 * Counts the bytes that an entry moves through memory, from the list of accesses. Each buffer counts once if
 * it is read, and once if it is written. Two things are added here. An operation uses a part of the buffer
 * with a whole unit's parameters. Shards of parameters, and gradients that are written to their shards, may
 * be in no buffer of the arena.
 */
#include "shard_runtime/plan/plan.h"

/*
 * Is the buffer of access `a` counted already? A write is, if an earlier access of the entry wrote the
 * buffer; a read is, if an earlier access used it at all.
 */
static bool known(const struct plan *plan, const struct plan_entry *e, int a, bool writes)
{
    for (int b = e->first_access; b < a; b++)
        if (plan->accesses[b].buffer == plan->accesses[a].buffer &&
            (plan->accesses[b].writes || (!writes && plan->accesses[b].reads)))
            return true;
    return false;
}

/* Returns the bytes that the entry's accesses move. */
static uint64_t accessed(const struct plan *plan, const struct plan_entry *e)
{
    uint64_t bytes = 0;

    for (int a = e->first_access; a < e->first_access + e->n_accesses; a++) {
        const struct plan_access *access = &plan->accesses[a];
        const uint64_t size =
            access->share > 0 ? plan->buffers[access->buffer].size_bytes / (uint64_t)access->share : 0;

        bytes += access->reads && !known(plan, e, a, false) ? size : 0;
        bytes += access->writes && !known(plan, e, a, true) ? size : 0;
    }
    return bytes;
}

/* Bytes of a parameter that the operation reads. */
static uint64_t read_of(const struct graph_op *op, const struct fsdp_parameter *parameter)
{
    const size_t n_elems = graph_value_elems(op->output);

    return (op->kind->looks_up && n_elems < parameter->n_elems ? n_elems : parameter->n_elems) *
           fsdp_dtype_size(op->param_dtype);
}

/* Bytes of the operation's own parameters, and of those gradients that are written to their shards. */
static uint64_t of_parameters(const struct plan *plan, const struct plan_entry *e)
{
    const struct graph_op *op = plan->graph->ops[e->index];
    uint64_t bytes = 0;

    for (int i = 0; i < op->n_params; i++) {
        if (e->kind == PLAN_FORWARD || op->kind->backward_reads_params)
            bytes += read_of(op, op->params[i]);
        if (e->kind == PLAN_BACKWARD && e->back.d_param[i] < 0 &&
            plan->params[plan_param_index(plan, op->params[i])].trains)
            bytes += op->params[i]->n_elems * sizeof(float) * (e->back.add_d_param[i] ? 2 : 1);
    }
    return bytes;
}

/* Are all outputs the entry's inputs, in the same place? Then the entry does no work. */
static bool is_the_same(const struct plan *plan, const struct plan_entry *e)
{
    const struct graph_op *op = plan->graph->ops[e->index];
    int n_given = 0;

    if (e->kind == PLAN_FORWARD)
        return op->kind->output_is_input && e->op.input[0] >= 0 &&
               plan->buffers[e->op.input[0]].storage == plan->buffers[e->op.output].storage;
    for (int i = 0; i < op->n_inputs; i++) {
        if (e->back.d_input[i] < 0)
            continue;
        n_given++;
        if (op->kind->grad[i] != GRAPH_GRAD_COPY || e->back.add_d_input[i] ||
            plan->buffers[e->back.d_input[i]].storage != plan->buffers[e->back.d_output].storage)
            return false;
    }
    return n_given > 0 && op->n_params == 0;
}

static bool does_nothing(const struct plan *plan, const struct plan_entry *e)
{
    return e->kind == PLAN_RESHARD || e->kind == PLAN_COMPLETE ||
           (plan_is_operation(e) && e->op.with_before) ||
           (plan_is_operation(e) && !e->op.with_next && is_the_same(plan, e));
}

/*
 * Bytes that a group's entry reads of this rank's shards, if these are on the device, in no buffer of the
 * arena.
 */
static uint64_t of_shards(const struct plan *plan, const struct plan_entry *e)
{
    const struct plan_group *group = &plan->groups[e->index];
    uint64_t n_elems = 0;

    if (group->offloads)
        return 0;
    if ((e->kind == PLAN_GATHER && e->gather.slice < 0) || (e->kind == PLAN_UNPACK && e->unpack.gathered < 0))
        n_elems = group->row_elems;
    for (int i = 0; i < group->n_params && e->kind == PLAN_AMAX; i++)
        if (plan->params[group->params[i]].coded >= 0)
            n_elems += plan->params[group->params[i]].chunk_elems;
    return n_elems * sizeof(float);
}

uint64_t plan_entry_bytes(const struct plan *plan, const struct plan_entry *e)
{
    if (does_nothing(plan, e))
        return 0;
    if (plan_is_operation(e))
        return accessed(plan, e) + of_parameters(plan, e) +
               (e->op.with_next ? of_parameters(plan, e + 1) : 0);
    return accessed(plan, e) + (e->kind != PLAN_LOSS ? of_shards(plan, e) : 0);
}
