/*
 * Turns the recording into the program: each forward in its order, with its loss; then backward in the
 * reverse order. Each group's parameters are gathered before their use and freed after it, and its gradients
 * are reduced.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/plan/writer.h"

/* Returns the place of the visit in the list. The list must contain it. */
static int place_of(const int *list, int visit)
{
    int place = 0;

    while (list[place] != visit)
        place++;
    return place;
}

/* Begin to gather a group ahead of its use, unless it stays sharded in backward. */
static void prefetch_group(struct writer *w, int group, bool backward)
{
    if (!backward || !w->plan->groups[group].unit->policy.not_in_backward)
        life_issue_gather(w, group);
}

/* Begins to gather the groups that the unit's policy lists for early gathering. */
static void prefetch_listed(struct writer *w, const struct unit_list *list, bool backward)
{
    for (size_t i = 0; i < list->n_units; i++)
        for (int g = 0; g < w->plan->n_groups; g++)
            if (w->plan->groups[g].unit == module_group(list->units[i]) && !w->plan->groups[g].local)
                prefetch_group(w, g, backward);
}

/*
 * Begin to gather what the next visit needs: the one after `place` in forward (step 1), or before it in
 * backward (step -1). Modules of the same list are skipped, as their group is gathered already. A unit may
 * name units to gather early: in forward they come before the next visit; in backward they replace it.
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

/* Write all entries of one forward but its loss. */
static void write_forward_pass(struct writer *w, const struct graph_forward *forward)
{
    for (size_t e = forward->first_event; e < forward->end_event && !w->out_of_memory; e++) {
        const struct graph_event *event = &w->graph->events[e];

        if (event->kind == GRAPH_OP) {
            writer_forward(w, event->index, false);
        } else if (event->kind == GRAPH_BEGIN || event->kind == GRAPH_END) {
            continue; /* regions affect memory only in backward, which handles them */
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
    /*
     * If only some modules of a list have run, their group is still whole. An evaluation ends here, so the
     * group is freed.
     */
    for (int g = 0; g < w->plan->n_groups && !w->graph->training; g++)
        life_reshard(w, g, PLAN_ALWAYS);
}

/*
 * Does no gradient go from the visit that is entered at `event` to anything before it? FSDP2 judges by the
 * call's input, even if the module returns that input unchanged.
 */
static bool nothing_before_learns(const struct writer *w, size_t event)
{
    const struct graph *graph = w->graph;
    const int visit = graph->events[event].index;
    int first_op = -1;

    if (graph->visits[visit].input != NULL)
        return !graph->visits[visit].input->needs_grad;
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
 * The backward of the group's first visit is over. FSDP2 notices that when the gradient of the visit's input
 * is complete. If the input has no gradient, as before an embedding, FSDP2 finishes the group at the very end
 * of backward, after the root.
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
 * Does backward come to the visit that is left at `event`? If nothing in the visit or before it learns,
 * FSDP2's hook on its output is never called. Then neither its parameters nor those of the next visit are
 * gathered.
 */
static bool backward_reaches(const struct writer *w, size_t event)
{
    const struct graph *graph = w->graph;
    const int visit = graph->events[event].index;
    bool reached = false;

    if (graph->visits[visit].output != NULL)
        return graph->visits[visit].output->needs_grad;
    for (size_t e = event; graph->events[e].kind != GRAPH_ENTER || graph->events[e].index != visit; e--)
        reached = reached || (graph->events[e].kind == GRAPH_OP &&
                              graph->ops[graph->events[e].index]->output->needs_grad);
    return reached;
}

/*
 * The backward of a visit that was not the group's first is over. FSDP2 frees the parameters if the visit's
 * input has a gradient, even if they were kept after forward. The visit before gathers them again.
 */
static void reshard_between(struct writer *w, int group, size_t event)
{
    if (w->opens[w->graph->events[event].index] && !life_stays(w, group) && !nothing_before_learns(w, event))
        life_reshard(w, group, PLAN_ALWAYS);
}

/*
 * Find the first visit of each group in the forwards from `first` on: the group's backward ends with it. Mark
 * all gradients as not written yet.
 */
static void begin_backward(struct writer *w, int first)
{
    for (int g = 0; g < w->plan->n_groups; g++) {
        w->life[g].first_visit = -1;
        w->life[g].last = false;
    }
    for (size_t v = w->graph->n_visits; v-- > 0 && w->graph->visits[v].forward >= first;)
        w->life[w->visit_group[v]].first_visit = (int)v; /* numbered as they are entered */
    for (int i = 0; i < w->plan->n_params; i++)
        w->plan->params[i].has_grad = false;
}

/* Write the backward of the forwards `first` to `last`, the last one's part first. */
static void write_backward_pass(struct writer *w, int first, int last)
{
    const size_t first_event = w->graph->forwards[first].first_event;

    begin_backward(w, first);
    for (size_t e = w->graph->forwards[last].end_event; e-- > first_event && !w->out_of_memory;) {
        const struct graph_event *event = &w->graph->events[e];
        int group;

        if (event->kind == GRAPH_OP) {
            writer_backward(w, event->index);
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
        } else {
            reshard_between(w, group, e);
        }
    }
}

/* Returns the visit that was entered first, among the group's visits that are left at `place` or later. */
static int first_entered(const struct writer *w, int group, int place)
{
    int first = w->leaves[place];

    for (int p = place; p < (int)w->graph->n_visits; p++)
        if (w->visit_group[w->leaves[p]] == group && w->leaves[p] < first)
            first = w->leaves[p]; /* visits are numbered as they are entered */
    return first;
}

/*
 * Cut the visits of a group into runs. A run ends when every module of the group's list has been left since
 * it began; for a single unit each visit is a run. A module that runs twice in between counts once. If a
 * forward ends within a run, the group stays whole until backward. opens[] marks the first visit that a run
 * entered, closes[] the last that it left.
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
        if (begin >= 0 && w->graph->visits[w->leaves[begin]].forward != w->graph->visits[visit].forward)
            begin = -1;
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

/* Find each visit's group and its place in both orders, and mark every buffer as not there. */
static void number_visits(struct writer *w)
{
    int n_enters = 0, n_leaves = 0;

    for (int g = 0; g < w->plan->n_groups; g++)
        w->life[g] = (struct group_life){
            .gathered = -1, .shard = -1, .copied_out = -1, .amax = -1, .slice = -1, .first_visit = -1
        };
    for (size_t e = 0; e < w->graph->n_events; e++) {
        const int visit = w->graph->events[e].index;

        if (w->graph->events[e].kind == GRAPH_ENTER) {
            int group = 0;

            while (w->plan->groups[group].unit != module_group(w->graph->visits[visit].unit))
                group++;
            w->visit_group[visit] = group;
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

/* Write every call of the program: the forwards, then the backwards. */
static void write_calls(struct writer *w)
{
    struct plan *plan = w->plan;

    for (int f = 0; f < plan->n_forwards; f++, w->call++) {
        write_forward_pass(w, &w->graph->forwards[f]);
        writer_loss(w, f);
    }
    for (w->backward = 0; w->backward < plan->n_backwards; w->backward++, w->call++) {
        const bool all = plan->n_backwards == 1;

        write_backward_pass(w, all ? 0 : w->backward, all ? plan->n_forwards - 1 : w->backward);
    }
}

/* Count the calls, and make room for the numbers of the gradients that each backward writes. */
static bool count_calls(struct plan *plan, const struct graph *graph)
{
    size_t n;

    plan->n_forwards = (int)graph->n_forwards;
    plan->n_backwards = !graph->training                                   ? 0
                        : plan->options.backwards == FSDP_BACKWARD_OF_EACH ? plan->n_forwards
                                                                           : 1;
    n = (size_t)plan->n_backwards * (size_t)plan->n_params;
    plan->grads = alloc_array(n, sizeof *plan->grads);
    for (size_t i = 0; i < n && plan->grads != NULL; i++)
        plan->grads[i] = -1;
    return plan->grads != NULL;
}

/* Allocate the writer's lists, those of one type as one block. False: out of memory. */
static bool make_lists(struct writer *w)
{
    const struct graph *graph = w->graph;
    const size_t n_visits = graph->n_visits, n_values = graph->n_values;

    w->life = alloc_array((size_t)w->plan->n_groups, sizeof *w->life);
    w->saved = alloc_array(graph->n_ops, sizeof *w->saved);
    w->visit_group = alloc_array(3 * n_visits + 2 * n_values, sizeof(int));
    w->opens = alloc_array(2 * n_visits + graph->n_ops, sizeof(bool));
    if (w->life == NULL || w->saved == NULL || w->visit_group == NULL || w->opens == NULL)
        return false;
    w->enters = w->visit_group + n_visits;
    w->leaves = w->enters + n_visits;
    w->value_buffer = w->leaves + n_visits;
    w->grad_buffer = w->value_buffer + n_values;
    w->closes = w->opens + n_visits;
    w->settled = w->closes + n_visits;
    return true;
}

enum fsdp_status plan_write_program(struct plan *plan, struct fsdp_err *err)
{
    struct writer w = { .plan = plan, .graph = plan->graph };

    w.out_of_memory = !make_lists(&w) || !count_calls(plan, plan->graph);
    if (!w.out_of_memory) {
        number_visits(&w);
        recompute_settle_regions(&w);
        write_calls(&w);
    }
    free(w.life);
    free(w.saved);
    free(w.visit_group);
    free(w.opens);
    if (!w.out_of_memory && w.unreadable != NULL)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "the backward of \"%s\" reads its parameters, which unshard_in_backward leaves where they are",
            w.unreadable->name);
    return w.out_of_memory ? fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory") : FSDP_OK;
}
