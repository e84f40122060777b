/*
 * Computes values again in backward instead of keeping them. Forward entries are written a second time before
 * the backward that needs their outputs. This is done for whole regions (activation checkpointing), and
 * elsewhere for single cheap operations. A buffer ends with its last use, so a value that no entry reads
 * between forward and its second computation is not kept.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/plan/writer.h"

/* The values and operations that a region needs before its backward runs. */
struct needs {
    /* values of the graph that a backward in the region reads, or an operation that runs again */
    bool *values;
    bool *runs; /* operations that run again */
};

/* Does the operation's backward read data that its forward saves? */
static bool saves(const struct graph_op *op)
{
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        if (op->saved_bytes[i] > 0)
            return true;
    return false;
}

/*
 * Walks from the last operation to the first, because an operation that reads a value comes after the one
 * that makes it.
 */
static void find_needs(const struct writer *w, const struct graph_region *region, struct needs *needs)
{
    for (size_t e = region->last_event; e-- > region->first_event;) {
        const struct graph_event *event = &w->graph->events[e];
        const struct graph_op *op = event->kind == GRAPH_OP ? w->graph->ops[event->index] : NULL;
        bool backward, kept;

        if (op == NULL)
            continue;
        backward = op->output->needs_grad;
        kept = region->selective && op->kind->costly;
        if (backward && op->kind->keeps_output)
            needs->values[op->output->id] = true;
        needs->runs[event->index] = !kept && (needs->values[op->output->id] || (backward && saves(op)));
        for (int i = 0; i < op->n_inputs; i++)
            if (needs->runs[event->index] || (backward && op->kind->keeps_input[i]))
                needs->values[op->inputs[i]->id] = true;
    }
}

/* Does backward come to any operation of the region? */
static bool backward_reaches(const struct writer *w, const struct graph_region *region)
{
    bool reached = false;

    for (size_t e = region->first_event; e < region->last_event; e++)
        reached = reached || (w->graph->events[e].kind == GRAPH_OP &&
                              w->graph->ops[w->graph->events[e].index]->output->needs_grad);
    return reached;
}

/* Write the forwards that run again, and make the parameters whole that they read. */
static void write_again(struct writer *w, const struct graph_region *region, const struct needs *needs)
{
    for (size_t e = region->first_event; e < region->last_event && !w->out_of_memory; e++) {
        const struct graph_event *event = &w->graph->events[e];

        if (event->kind == GRAPH_OP && needs->runs[event->index])
            writer_forward(w, event->index, true);
        else if (event->kind == GRAPH_ENTER)
            life_need_whole(w, w->visit_group[event->index]);
    }
}

void recompute_region(struct writer *w, const struct graph_region *region)
{
    struct needs needs;

    if (!backward_reaches(w, region))
        return;
    needs = (struct needs){ .values = alloc_array(w->graph->n_values, sizeof(bool)),
                            .runs = alloc_array(w->graph->n_ops, sizeof(bool)) };

    if (needs.values == NULL || needs.runs == NULL) {
        w->out_of_memory = true;
    } else {
        find_needs(w, region, &needs);
        write_again(w, region, &needs);
    }
    free(needs.values);
    free(needs.runs);
}

void recompute_settle_regions(struct writer *w)
{
    const struct graph *graph = w->graph;

    for (size_t op = 0; op < graph->n_ops; op++)
        w->settled[op] = w->plan->options.keeps_cheap;
    for (size_t r = 0; r < graph->n_regions; r++)
        for (size_t e = graph->regions[r].first_event; e < graph->regions[r].last_event; e++)
            if (graph->events[e].kind == GRAPH_OP)
                w->settled[graph->events[e].index] = true;
}

/*
 * Is the operation cheap, are its parameters whole, and does its own backward keep everything that it reads?
 */
static bool can_run_again(const struct writer *w, const struct graph_op *op)
{
    bool can = op->kind->cheap && op->output->needs_grad;

    for (int i = 0; i < op->n_inputs; i++)
        can = can && op->kind->keeps_input[i];
    for (int i = 0; i < op->n_params; i++) {
        const int group = w->plan->params[plan_param_index(w->plan, op->params[i])].group;

        can = can && (!w->plan->groups[group].gathers || w->life[group].state == WHOLE);
    }
    return can;
}

void recompute_cheap(struct writer *w, int index)
{
    const struct graph_op *op = w->graph->ops[index];

    for (int i = 0; i < op->n_inputs; i++) {
        const int producer = op->inputs[i]->producer;

        if (!op->kind->keeps_input[i] || producer < 0 || w->settled[producer])
            continue;
        w->settled[producer] = true;
        if (!can_run_again(w, w->graph->ops[producer]))
            continue;
        recompute_cheap(w, producer); /* its inputs may be outputs of cheap operations too */
        writer_forward(w, producer, true);
    }
}
