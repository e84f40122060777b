/*
 * Entries of operations: which buffers forward, the loss and backward of each read and write. passes.c says in what
 * order, life.c what lies around them.
 */
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/plan/writer.h"

int writer_add_buffer(struct writer *w, enum plan_what what, size_t index, enum plan_class class,
                      size_t size_bytes)
{
    struct plan *plan = w->plan;

    if (w->out_of_memory ||
        !alloc_room(&plan->buffers, &plan->buffers_room, (size_t)plan->n_buffers, sizeof *plan->buffers)) {
        w->out_of_memory = true;
        return -1;
    }
    plan->buffers[plan->n_buffers] = (struct plan_buffer){ .what = what,
                                                           .index = (int)index,
                                                           .class = class,
                                                           .size_bytes = size_bytes,
                                                           .storage = plan->n_buffers };
    return plan->n_buffers++;
}

/* A new entry with every buffer unset, or a place to write into that leads nowhere. */
struct plan_entry *writer_add_entry(struct writer *w, enum plan_entry_kind kind, int index,
                                    enum plan_stream stream)
{
    struct plan *plan = w->plan;
    struct plan_entry *entry;

    if (w->out_of_memory || !alloc_room(&plan->entries, &plan->entries_room, (size_t)plan->n_entries + 1,
                                        sizeof *plan->entries)) {
        w->out_of_memory = true;
        return NULL;
    }
    entry = &plan->entries[plan->n_entries++];
    *entry = (struct plan_entry){ .kind = kind,
                                  .index = index,
                                  .call = w->call,
                                  .backward = w->backward,
                                  .stream = stream,
                                  .gathered = -1,
                                  .amax = -1,
                                  .slice = -1,
                                  .behind = -1,
                                  .packed = -1,
                                  .shard = -1,
                                  .sum = -1,
                                  .output = -1,
                                  .bias_of = -1,
                                  .scratch = -1,
                                  .d_output = -1 };
    for (int i = 0; i < GRAPH_MAX_INPUTS; i++)
        entry->input[i] = entry->d_input[i] = entry->temporary[i] = -1;
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        entry->saved[i] = -1;
    for (int i = 0; i < GRAPH_MAX_PARAMS; i++)
        entry->params[i] = entry->d_param[i] = -1;
    for (int part = 0; part < PLAN_N_PARTS; part++)
        entry->whole[part] = -1;
    for (int s = 0; s < PLAN_N_STREAMS; s++)
        entry->waits[s] = -1;
    return entry;
}

/* --- operations
 * ------------------------------------------------------------------------------------------------ */

void writer_forward(struct writer *w, int index, bool again)
{
    const struct graph_op *op = w->graph->ops[index];
    int scratch = -1, output, saved[GRAPH_MAX_SAVED] = { -1, -1 };
    struct plan_entry *entry;

    output = writer_add_buffer(w, PLAN_VALUE, (size_t)op->output->id, PLAN_ACTIVATIONS,
                               graph_value_bytes(op->output));
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        if (op->saved_bytes[i] > 0)
            saved[i] = writer_add_buffer(w, PLAN_SAVED, (size_t)index, PLAN_ACTIVATIONS, op->saved_bytes[i]);
    if (op->forward_scratch > 0)
        scratch = writer_add_buffer(w, PLAN_WORK, (size_t)index, PLAN_SCRATCH, op->forward_scratch);
    entry = writer_add_entry(w, PLAN_FORWARD, index, op->kind->reduces_output ? PLAN_TENSOR : PLAN_COMPUTE);
    if (entry == NULL)
        return;
    for (int i = 0; i < op->n_inputs; i++)
        entry->input[i] = w->value_buffer[op->inputs[i]->id];
    for (int i = 0; i < op->n_params; i++)
        entry->params[i] = life_whole_of(w, plan_param_index(w->plan, op->params[i]));
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        entry->saved[i] = w->saved[index][i] = saved[i];
    entry->scratch = scratch;
    entry->again = again;
    entry->output = w->value_buffer[op->output->id] = output;
}

void writer_loss(struct writer *w, int forward)
{
    const struct fsdp_value *result = w->graph->forwards[forward].result;
    struct plan_entry *entry;
    int gradient = -1;

    if (w->graph->training)
        gradient = writer_add_buffer(w, PLAN_VALUE_GRAD, (size_t)result->id, PLAN_ACTIVATIONS,
                                     graph_value_bytes(result));
    entry = writer_add_entry(w, PLAN_LOSS, forward, PLAN_COMPUTE);
    if (entry == NULL)
        return;
    entry->input[0] = w->value_buffer[result->id];
    entry->d_output = w->grad_buffer[result->id] = gradient;
}

/* Where the gradient of the op's input `i` goes, and whether it is added there. */
static void route_input_grad(struct writer *w, const struct graph_op *op, struct plan_entry *into, int i)
{
    const struct fsdp_value *value = op->inputs[i];
    const enum graph_grad how = op->kind->grad[i];
    int *buffer = &w->grad_buffer[value->id];

    if (!value->needs_grad || how == GRAPH_GRAD_NONE)
        return;
    into->wants_d_input[i] = true;
    into->add_d_input[i] = *buffer >= 0;
    if (*buffer < 0)
        *buffer = writer_add_buffer(w, PLAN_VALUE_GRAD, (size_t)value->id, PLAN_ACTIVATIONS,
                                    graph_value_bytes(value));
    else if (how == GRAPH_GRAD_WRITE)
        into->temporary[i] = writer_add_buffer(w, PLAN_TEMPORARY, (size_t)value->id, PLAN_ACTIVATIONS,
                                               graph_value_bytes(value));
    into->d_input[i] = *buffer;
}

static void route_param_grad(struct writer *w, const struct graph_op *op, struct plan_entry *into, int i)
{
    struct plan *plan = w->plan;
    const int index = plan_param_index(plan, op->params[i]);
    struct plan_param *param = &plan->params[index];

    if (!param->trains)
        return;
    into->add_d_param[i] = param->has_grad;
    into->d_param[i] = life_grad_of(w, index);
    param->has_grad = true;
}

/* Parameters that were not gathered for backward cannot be read in it. */
static void check_readable(struct writer *w, const struct graph_op *op, int i)
{
    const struct plan_param *param = &w->plan->params[plan_param_index(w->plan, op->params[i])];

    if (op->kind->backward_reads_params && w->plan->groups[param->group].gathers &&
        w->life[param->group].state != WHOLE && w->unreadable == NULL)
        w->unreadable = op;
}

void writer_backward(struct writer *w, int index)
{
    const struct graph_op *op = w->graph->ops[index];
    struct plan_entry routed = { 0 }, *entry;
    int scratch = -1;

    if (w->grad_buffer[op->output->id] < 0 || !op->output->needs_grad)
        return; /* the loss does not depend on it, or nothing before it learns */
    recompute_cheap(w, index);
    for (int i = 0; i < GRAPH_MAX_INPUTS; i++)
        routed.d_input[i] = routed.temporary[i] = -1;
    for (int i = 0; i < GRAPH_MAX_PARAMS; i++)
        routed.d_param[i] = -1;
    for (int i = 0; i < op->n_inputs; i++)
        route_input_grad(w, op, &routed, i);
    for (int i = 0; i < op->n_params; i++)
        route_param_grad(w, op, &routed, i);
    if (op->backward_scratch > 0)
        scratch = writer_add_buffer(w, PLAN_WORK, (size_t)index, PLAN_SCRATCH, op->backward_scratch);
    entry = writer_add_entry(w, PLAN_BACKWARD, index, op->kind->reduces_grad ? PLAN_TENSOR : PLAN_COMPUTE);
    if (entry == NULL)
        return;
    for (int i = 0; i < op->n_inputs; i++) {
        entry->input[i] = op->kind->keeps_input[i] ? w->value_buffer[op->inputs[i]->id] : -1;
        entry->wants_d_input[i] = routed.wants_d_input[i];
        entry->add_d_input[i] = routed.add_d_input[i];
        entry->d_input[i] = routed.d_input[i];
        entry->temporary[i] = routed.temporary[i];
    }
    for (int i = 0; i < op->n_params; i++) {
        check_readable(w, op, i);
        if (op->kind->backward_reads_params)
            entry->params[i] = life_whole_of(w, plan_param_index(w->plan, op->params[i]));
        entry->d_param[i] = routed.d_param[i];
        entry->add_d_param[i] = routed.add_d_param[i];
    }
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        entry->saved[i] = w->saved[index][i];
    entry->scratch = scratch;
    entry->output = op->kind->keeps_output ? w->value_buffer[op->output->id] : -1;
    entry->d_output = w->grad_buffer[op->output->id];
}
