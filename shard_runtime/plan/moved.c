/*
 * What an entry moves through memory, read off the list of accesses: each buffer once where it is read and
 * once where it is written. Three things the list does not say are added here: which part of a buffer with a
 * whole unit's parameters an operation uses, what lies in no buffer of the arena, and which accesses only
 * keep an order.
 */
#include "shard_runtime/plan/plan.h"

/* Does an operation use a part of it alone? */
static bool holds_a_unit(const struct plan_buffer *buffer)
{
    return buffer->what == PLAN_WHOLE_PARAMS || buffer->what == PLAN_GRAD_SHARDS;
}

static bool is_operation(const struct plan_entry *e)
{
    return e->kind == PLAN_FORWARD || e->kind == PLAN_BACKWARD;
}

/* The rows of the buffer that the entry leaves alone are not moved: it uses this rank's. */
static uint64_t rows_of(const struct plan *plan, const struct plan_entry *e, int buffer)
{
    const bool own = (buffer == e->packed && e->kind != PLAN_PACK && e->kind != PLAN_REDUCE) ||
                     (buffer == e->gathered && e->kind == PLAN_COPY_IN);

    return own ? (uint64_t)plan->groups[e->index].W : 1;
}

/* Did the entry read it (or write it) in an access before `a`? */
static bool known(const struct plan *plan, const struct plan_entry *e, int a, bool writes)
{
    for (int b = e->first_access; b < a; b++)
        if (plan->accesses[b].buffer == plan->accesses[a].buffer &&
            (plan->accesses[b].writes || (!writes && plan->accesses[b].reads)))
            return true;
    return false;
}

static uint64_t accessed(const struct plan *plan, const struct plan_entry *e)
{
    uint64_t bytes = 0;

    for (int a = e->first_access; a < e->first_access + e->n_accesses; a++) {
        const struct plan_access *access = &plan->accesses[a];
        const struct plan_buffer *buffer = &plan->buffers[access->buffer];
        const uint64_t size = buffer->size_bytes / rows_of(plan, e, access->buffer);

        if (access->buffer == e->behind || (is_operation(e) && holds_a_unit(buffer)))
            continue;
        bytes += access->reads && !known(plan, e, a, false) ? size : 0;
        bytes += access->writes && !known(plan, e, a, true) ? size : 0;
    }
    return bytes;
}

static uint64_t read_of(const struct graph_op *op, const struct fsdp_parameter *parameter)
{
    const size_t n_elems = graph_value_elems(op->output);

    return (op->kind->looks_up && n_elems < parameter->n_elems ? n_elems : parameter->n_elems) *
           fsdp_dtype_size(op->param_dtype);
}

/* The operation's own parameters, and those of their gradients that are written where the shards are. */
static uint64_t of_parameters(const struct plan *plan, const struct plan_entry *e)
{
    const struct graph_op *op = plan->graph->ops[e->index];
    uint64_t bytes = 0;

    for (int i = 0; i < op->n_params; i++) {
        if (e->kind == PLAN_FORWARD || op->kind->backward_reads_params)
            bytes += read_of(op, op->params[i]);
        if (e->kind == PLAN_BACKWARD && e->d_param[i] < 0 &&
            plan->params[plan_param_index(plan, op->params[i])].trains)
            bytes += op->params[i]->n_elems * sizeof(float) * (e->add_d_param[i] ? 2 : 1);
    }
    return bytes;
}

/* Is what the entry gives what it is given, in the same place? Then it does nothing. */
static bool is_the_same(const struct plan *plan, const struct plan_entry *e)
{
    const struct graph_op *op = plan->graph->ops[e->index];
    int n_given = 0;

    if (e->kind == PLAN_FORWARD)
        return op->kind->output_is_input && e->input[0] >= 0 &&
               plan->buffers[e->input[0]].storage == plan->buffers[e->output].storage;
    for (int i = 0; i < op->n_inputs; i++) {
        if (e->d_input[i] < 0)
            continue;
        n_given++;
        if (op->kind->grad[i] != GRAPH_GRAD_COPY || e->add_d_input[i] ||
            plan->buffers[e->d_input[i]].storage != plan->buffers[e->d_output].storage)
            return false;
    }
    return n_given > 0 && op->n_params == 0;
}

static bool does_nothing(const struct plan *plan, const struct plan_entry *e)
{
    return e->kind == PLAN_RESHARD || e->kind == PLAN_COMPLETE || (is_operation(e) && e->with_before) ||
           (is_operation(e) && !e->with_next && is_the_same(plan, e));
}

/* What a group's entry reads of this rank's shards where they are on the device for good, in no buffer of the
 * arena. */
static uint64_t of_shards(const struct plan *plan, const struct plan_entry *e)
{
    const struct plan_group *group = &plan->groups[e->index];
    uint64_t n_elems = 0;

    if (group->offloads)
        return 0;
    if ((e->kind == PLAN_GATHER && e->slice < 0) || (e->kind == PLAN_UNPACK && e->gathered < 0))
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
    if (is_operation(e))
        return accessed(plan, e) + of_parameters(plan, e) + (e->with_next ? of_parameters(plan, e + 1) : 0);
    return accessed(plan, e) + (e->kind != PLAN_LOSS ? of_shards(plan, e) : 0);
}
