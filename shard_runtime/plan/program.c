/*
 * Writes the entries of operations: the buffers that the forward, loss and backward of each operation read
 * and write. passes.c decides their order, and life.c writes the entries around them. Only this file appends
 * to the lists of buffers and entries.
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

struct plan_entry writer_entry(const struct writer *w, enum plan_entry_kind kind, int index,
                               enum plan_stream stream)
{
    struct plan_entry entry = {
        .kind = kind, .index = index, .stream = stream, .call = w->call, .backward = w->backward
    };

    plan_entry_unset(&entry);
    return entry;
}

void writer_append(struct writer *w, const struct plan_entry *entry)
{
    struct plan *plan = w->plan;

    if (w->out_of_memory ||
        !alloc_room(&plan->entries, &plan->entries_room, (size_t)plan->n_entries, sizeof *plan->entries))
        w->out_of_memory = true;
    else
        plan->entries[plan->n_entries++] = *entry;
}

/* Adds a buffer for the scratch of operation `index`. Returns -1 if the operation needs none. */
static int add_scratch(struct writer *w, int index, size_t size_bytes)
{
    return size_bytes > 0 ? writer_add_buffer(w, PLAN_WORK, (size_t)index, PLAN_SCRATCH, size_bytes) : -1;
}

void writer_forward(struct writer *w, int index, bool again)
{
    const struct graph_op *op = w->graph->ops[index];
    struct plan_entry entry =
        writer_entry(w, PLAN_FORWARD, index, op->kind->reduces_output ? PLAN_TENSOR : PLAN_COMPUTE);
    const int output = writer_add_buffer(w, PLAN_VALUE, (size_t)op->output->id, PLAN_ACTIVATIONS,
                                         graph_value_bytes(op->output));

    for (int i = 0; i < op->n_inputs; i++)
        entry.op.input[i] = w->value_buffer[op->inputs[i]->id];
    for (int i = 0; i < op->n_params; i++)
        entry.op.params[i] = life_whole_of(w, plan_param_index(w->plan, op->params[i]));
    for (int i = 0; i < GRAPH_MAX_SAVED; i++) {
        if (op->saved_bytes[i] > 0)
            entry.op.saved[i] =
                writer_add_buffer(w, PLAN_SAVED, (size_t)index, PLAN_ACTIVATIONS, op->saved_bytes[i]);
        w->saved[index][i] = entry.op.saved[i];
    }
    entry.op.scratch = add_scratch(w, index, op->forward_scratch);
    entry.op.again = again;
    entry.op.output = w->value_buffer[op->output->id] = output;
    writer_append(w, &entry);
}

void writer_loss(struct writer *w, int forward)
{
    const struct fsdp_value *result = w->graph->forwards[forward].result;
    struct plan_entry entry = writer_entry(w, PLAN_LOSS, forward, PLAN_COMPUTE);

    entry.loss.logits = w->value_buffer[result->id];
    if (w->graph->training)
        entry.loss.d_logits = writer_add_buffer(w, PLAN_VALUE_GRAD, (size_t)result->id, PLAN_ACTIVATIONS,
                                                graph_value_bytes(result));
    w->grad_buffer[result->id] = entry.loss.d_logits;
    writer_append(w, &entry);
}

/* Choose where the gradient of the operation's input `i` goes, and whether it is added there. */
static void route_input_grad(struct writer *w, const struct graph_op *op, struct plan_backward *back, int i)
{
    const struct fsdp_value *value = op->inputs[i];
    const enum graph_grad how = op->kind->grad[i];
    int *buffer = &w->grad_buffer[value->id];

    if (!value->needs_grad || how == GRAPH_GRAD_NONE)
        return;
    back->add_d_input[i] = *buffer >= 0;
    if (*buffer < 0)
        *buffer = writer_add_buffer(w, PLAN_VALUE_GRAD, (size_t)value->id, PLAN_ACTIVATIONS,
                                    graph_value_bytes(value));
    else if (how == GRAPH_GRAD_WRITE)
        back->temporary[i] = writer_add_buffer(w, PLAN_TEMPORARY, (size_t)value->id, PLAN_ACTIVATIONS,
                                               graph_value_bytes(value));
    back->d_input[i] = *buffer;
}

/* Chooses where the gradient of parameter `i` goes, and whether it is added there. */
static void route_param_grad(struct writer *w, const struct graph_op *op, struct plan_backward *back, int i)
{
    const int index = plan_param_index(w->plan, op->params[i]);
    struct plan_param *param = &w->plan->params[index];

    if (!param->trains)
        return;
    back->add_d_param[i] = param->has_grad;
    back->d_param[i] = life_grad_of(w, index);
    param->has_grad = true;
}

/* Notes the first operation whose backward would read a parameter that was not gathered for backward. */
static void check_readable(struct writer *w, const struct graph_op *op, int i)
{
    const struct plan_param *param = &w->plan->params[plan_param_index(w->plan, op->params[i])];

    if (w->plan->groups[param->group].gathers && w->life[param->group].state != WHOLE &&
        w->unreadable == NULL)
        w->unreadable = op;
}

void writer_backward(struct writer *w, int index)
{
    const struct graph_op *op = w->graph->ops[index];
    struct plan_entry entry =
        writer_entry(w, PLAN_BACKWARD, index, op->kind->reduces_grad ? PLAN_TENSOR : PLAN_COMPUTE);
    struct plan_operation *own = &entry.back.op;

    if (w->grad_buffer[op->output->id] < 0 || !op->output->needs_grad)
        return; /* the loss does not depend on the operation, or no parameter before it learns */
    recompute_cheap(w, index);
    for (int i = 0; i < op->n_inputs; i++) {
        route_input_grad(w, op, &entry.back, i);
        if (op->kind->keeps_input[i])
            own->input[i] = w->value_buffer[op->inputs[i]->id];
    }
    for (int i = 0; i < op->n_params; i++) {
        route_param_grad(w, op, &entry.back, i);
        if (!op->kind->backward_reads_params)
            continue;
        check_readable(w, op, i);
        own->params[i] = life_whole_of(w, plan_param_index(w->plan, op->params[i]));
    }
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        own->saved[i] = w->saved[index][i];
    own->scratch = add_scratch(w, index, op->backward_scratch);
    if (op->kind->keeps_output)
        own->output = w->value_buffer[op->output->id];
    entry.back.d_output = w->grad_buffer[op->output->id];
    writer_append(w, &entry);
}
