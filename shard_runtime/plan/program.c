/*
 * From the recording to the program: forward in its order, the loss, backward in the reverse order, and
 * around them the life of each group's parameters and gradients.
 */
#include <stdlib.h>

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
                                  .stream = stream,
                                  .gathered = -1,
                                  .slice = -1,
                                  .behind = -1,
                                  .whole = -1,
                                  .packed = -1,
                                  .output = -1,
                                  .scratch = -1,
                                  .d_output = -1 };
    for (int i = 0; i < GRAPH_MAX_INPUTS; i++)
        entry->input[i] = entry->d_input[i] = entry->temporary[i] = -1;
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        entry->saved[i] = -1;
    for (int i = 0; i < GRAPH_MAX_PARAMS; i++)
        entry->params[i] = entry->d_param[i] = -1;
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

static void write_loss(struct writer *w)
{
    const struct fsdp_value *result = w->graph->result;
    struct plan_entry *entry;
    int gradient = -1;

    if (w->graph->training)
        gradient = writer_add_buffer(w, PLAN_VALUE_GRAD, (size_t)result->id, PLAN_ACTIVATIONS,
                                     graph_value_bytes(result));
    entry = writer_add_entry(w, PLAN_LOSS, -1, PLAN_COMPUTE);
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

static void write_backward(struct writer *w, int index)
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

/* --- the two passes
 * -------------------------------------------------------------------------------------------- */

static int place_of(const int *list, int visit)
{
    int place = 0;

    while (list[place] != visit)
        place++;
    return place;
}

static void prefetch_group(struct writer *w, int group, bool backward)
{
    if (!backward || !w->plan->groups[group].unit->policy.not_in_backward)
        life_issue_gather(w, group);
}

/* What the unit asked to have early. */
static void prefetch_listed(struct writer *w, const struct unit_list *list, bool backward)
{
    for (size_t i = 0; i < list->n_units; i++)
        for (int g = 0; g < w->plan->n_groups; g++)
            if (w->plan->groups[g].unit == module_group(list->units[i]) && !w->plan->groups[g].local)
                prefetch_group(w, g, backward);
}

/*
 * Begin to gather what the visit after `place` in forward, or before it in backward, needs; modules of the same list
 * need nothing more. Where a unit names others, these come first in forward, and in place of that in backward.
 */
static void prefetch(struct writer *w, const int *list, int place, int step)
{
    const int group = w->visit_group[list[place]], n = (int)w->graph->n_visits;
    const struct unit_list *own = &w->plan->groups[group].unit->policy.prefetch[step < 0];
    const bool is_list = w->plan->groups[group].n_units > 1;

    prefetch_listed(w, own, step < 0);
    if (step < 0 && own->n_units > 0)
        return;
    for (place += step; is_list && place >= 0 && place < n && w->visit_group[list[place]] == group;)
        place += step;
    if (w->plan->options.prefetch > 0 && place >= 0 && place < n)
        prefetch_group(w, w->visit_group[list[place]], step < 0);
}

static void write_forward_pass(struct writer *w)
{
    for (size_t e = 0; e < w->graph->n_events && !w->out_of_memory; e++) {
        const struct graph_event *event = &w->graph->events[e];

        if (event->kind == GRAPH_OP) {
            writer_forward(w, event->index, false);
        } else if (event->kind == GRAPH_BEGIN || event->kind == GRAPH_END) {
            continue; /* what it means for memory is decided where backward comes to it */
        } else if (event->kind == GRAPH_ENTER) {
            const int place = place_of(w->enters, event->index);

            life_need_whole(w, w->visit_group[event->index]);
            prefetch(w, w->enters, place, 1);
        } else if ((!w->graph->training ||
                    w->plan->groups[w->visit_group[event->index]].reshard_after_forward) &&
                   w->closes[event->index]) {
            life_reshard_after_forward(w, w->visit_group[event->index]);
        }
    }
    /* A list of which only some modules ran is still whole; nothing comes after an evaluation that would need it. */
    for (int g = 0; g < w->plan->n_groups && !w->graph->training; g++)
        life_reshard(w, g, PLAN_ALWAYS);
}

/* Does no gradient go from the visit entered at `event` to anything before it? */
static bool nothing_before_learns(const struct writer *w, size_t event)
{
    const struct graph *graph = w->graph;
    const int visit = graph->events[event].index;
    int first_op = -1;

    for (size_t e = event + 1; graph->events[e].kind != GRAPH_LEAVE || graph->events[e].index != visit; e++) {
        const struct graph_op *op;

        if (graph->events[e].kind != GRAPH_OP)
            continue;
        op = graph->ops[graph->events[e].index];
        if (first_op < 0)
            first_op = graph->events[e].index;
        for (int i = 0; i < op->n_inputs; i++)
            if (op->inputs[i]->producer < first_op && op->inputs[i]->needs_grad)
                return false;
    }
    return true;
}

/*
 * The backward of the group's first visit is over. FSDP2 sees that when the gradient of the visit's input is there; where
 * there is none, as before an embedding, it finishes what is left at the very end, the root first.
 */
static void finish_or_wait(struct writer *w, int group, size_t event)
{
    if (group != 0 && nothing_before_learns(w, event)) {
        w->life[group].last = true;
        return;
    }
    life_finish(w, group);
    if (group != 0)
        return;
    for (const struct fsdp_module *m = w->plan->groups[0].unit; m != NULL;
         m = module_next(w->plan->groups[0].unit, m))
        for (int g = 1; g < w->plan->n_groups; g++)
            if (w->life[g].last && w->plan->groups[g].unit == m)
                life_finish(w, g);
}

/*
 * Does backward come to the visit that is left at `event`? Where nothing in it and nothing before it learns, FSDP2's hook on its
 * output is never called: its parameters are not gathered for it, nor others ahead of it.
 */
static bool backward_reaches(const struct writer *w, size_t event)
{
    const struct graph *graph = w->graph;
    const int visit = graph->events[event].index;
    bool reached = false;

    for (size_t e = event; graph->events[e].kind != GRAPH_ENTER || graph->events[e].index != visit; e--)
        reached = reached || (graph->events[e].kind == GRAPH_OP &&
                              graph->ops[graph->events[e].index]->output->needs_grad);
    return reached;
}

static void write_backward_pass(struct writer *w)
{
    for (size_t e = w->graph->n_events; e-- > 0 && !w->out_of_memory;) {
        const struct graph_event *event = &w->graph->events[e];
        int group;

        if (event->kind == GRAPH_OP) {
            write_backward(w, event->index);
            continue;
        }
        if (event->kind == GRAPH_END)
            recompute_region(w, &w->graph->regions[event->index]);
        if (event->kind == GRAPH_END || event->kind == GRAPH_BEGIN)
            continue;
        group = w->visit_group[event->index];
        if (event->kind == GRAPH_LEAVE) {
            const int place = place_of(w->leaves, event->index);

            if (!backward_reaches(w, e))
                continue;
            if (!w->plan->groups[group].unit->policy.not_in_backward)
                life_need_whole(w, group);
            prefetch(w, w->leaves, place, -1);
        } else if (w->life[group].first_visit == event->index) {
            finish_or_wait(w, group, e);
        } else if (w->plan->groups[group].reshard_after_forward && w->opens[event->index]) {
            life_reshard(w, group, PLAN_ALWAYS);
        }
    }
}

/* Of the group's visits that are left at `place` or later, the one that was entered first. */
static int first_entered(const struct writer *w, int group, int place)
{
    int first = w->leaves[place];

    for (int p = place; p < (int)w->graph->n_visits; p++)
        if (w->visit_group[w->leaves[p]] == group && w->leaves[p] < first)
            first = w->leaves[p]; /* visits are numbered as they are entered */
    return first;
}

/*
 * Cut the visits of a group into runs: each ends where every module of its list has been left since it began. A
 * module that runs twice meanwhile counts once; a run that never ends keeps the group whole until backward.
 */
static void find_runs(struct writer *w, int group)
{
    const int n_units = w->plan->groups[group].n_units, n = (int)w->graph->n_visits;
    int begin = -1, n_seen = 0;

    for (int place = 0; place < n; place++) {
        const int visit = w->leaves[place];
        bool seen = false;

        if (w->visit_group[visit] != group)
            continue;
        if (begin < 0) {
            begin = place;
            n_seen = 0;
            w->opens[first_entered(w, group, begin)] = true;
        }
        for (int before = begin; before < place; before++)
            seen = seen || (w->visit_group[w->leaves[before]] == group &&
                            w->graph->visits[w->leaves[before]].unit == w->graph->visits[visit].unit);
        n_seen += !seen;
        if (n_seen == n_units) {
            w->closes[visit] = true;
            begin = -1;
        }
    }
}

static void number_visits(struct writer *w)
{
    int n_enters = 0, n_leaves = 0;

    for (int g = 0; g < w->plan->n_groups; g++)
        w->life[g] = (struct group_life){ .gathered = -1, .whole = -1, .slice = -1, .first_visit = -1 };
    for (size_t e = 0; e < w->graph->n_events; e++) {
        const int visit = w->graph->events[e].index;

        if (w->graph->events[e].kind == GRAPH_ENTER) {
            int group = 0;

            while (w->plan->groups[group].unit != module_group(w->graph->visits[visit].unit))
                group++;
            w->visit_group[visit] = group;
            if (w->life[group].first_visit < 0)
                w->life[group].first_visit = visit;
            w->enters[n_enters++] = visit;
        } else if (w->graph->events[e].kind == GRAPH_LEAVE) {
            w->leaves[n_leaves++] = visit;
        }
    }
    for (int g = 0; g < w->plan->n_groups; g++)
        find_runs(w, g);
    for (size_t v = 0; v < w->graph->n_values; v++)
        w->value_buffer[v] = w->grad_buffer[v] = -1;
}

enum fsdp_status plan_write_program(struct plan *plan, struct fsdp_err *err)
{
    const struct graph *graph = plan->graph;
    struct writer w = { .plan = plan, .graph = graph };

    w.life = alloc_array((size_t)plan->n_groups, sizeof *w.life);
    w.visit_group = alloc_array(graph->n_visits, sizeof(int));
    w.enters = alloc_array(graph->n_visits, sizeof(int));
    w.leaves = alloc_array(graph->n_visits, sizeof(int));
    w.opens = alloc_array(graph->n_visits, sizeof(bool));
    w.closes = alloc_array(graph->n_visits, sizeof(bool));
    w.value_buffer = alloc_array(graph->n_values, sizeof(int));
    w.grad_buffer = alloc_array(graph->n_values, sizeof(int));
    w.saved = alloc_array(graph->n_ops, sizeof *w.saved);
    w.settled = alloc_array(graph->n_ops, sizeof *w.settled);
    w.out_of_memory = w.life == NULL || w.visit_group == NULL || w.enters == NULL || w.leaves == NULL ||
                      w.opens == NULL || w.closes == NULL || w.value_buffer == NULL ||
                      w.grad_buffer == NULL || w.saved == NULL || w.settled == NULL;
    if (!w.out_of_memory) {
        number_visits(&w);
        recompute_settle_regions(&w);
        write_forward_pass(&w);
        write_loss(&w);
        if (graph->training)
            write_backward_pass(&w);
    }
    free(w.life);
    free(w.visit_group);
    free(w.enters);
    free(w.leaves);
    free(w.opens);
    free(w.closes);
    free(w.value_buffer);
    free(w.grad_buffer);
    free(w.saved);
    free(w.settled);
    if (!w.out_of_memory && w.unreadable != NULL)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "the backward of \"%s\" reads its parameters, which unshard_in_backward leaves where they are",
            w.unreadable->name);
    return w.out_of_memory ? fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory") : FSDP_OK;
}
