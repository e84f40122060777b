/*
 * The life of a group in the program. Its parameters are gathered, unpacked and freed; its gradients are
 * packed, reduced and stored.
 */
#include <string.h>

#include "shard_runtime/plan/writer.h"

/* The micro-steps in which a gather runs: only the first one, if the parameters stay whole until the next. */
static enum plan_when when_gathered(const struct writer *w, int group)
{
    return !w->life[group].gathered_before && life_stays(w, group) ? PLAN_FIRST : PLAN_ALWAYS;
}

/* Is this the program's last backward? What only the last backward of a step does is written in it. */
static bool in_last_backward(const struct writer *w)
{
    return w->backward + 1 == w->plan->n_backwards;
}

/*
 * Returns the buffer for one part of the group's whole parameters; -1: the part is empty. If parameters stay
 * whole from one micro-step to the next, one buffer lasts for the whole step.
 */
static int whole_buffer(struct writer *w, int group, enum plan_part part)
{
    struct plan_group *g = &w->plan->groups[group];
    int buffer;

    if (g->whole_bytes[part] == 0)
        return -1;
    if (g->kept >= 0)
        return g->kept;
    buffer = writer_add_buffer(w, PLAN_WHOLE_PARAMS, (size_t)group, PLAN_GATHERED, g->whole_bytes[part]);
    if (buffer >= 0 && life_stays(w, group)) {
        w->plan->buffers[buffer].step_long = true;
        g->kept = buffer;
    }
    return buffer;
}

bool life_stays(const struct writer *w, int group)
{
    return w->plan->groups[group].keep_after_backward && w->plan->options.accumulates;
}

/*
 * May the shards of a group that offloads be copied straight to their row of the gather? It must need no
 * conversion.
 */
static bool copies_in_place(const struct plan_group *g)
{
    return g->W > 1 && g->param_dtype == FSDP_F32 && g->n_coded == 0;
}

/* Copy the shards of a group that offloads from host memory to where they are gathered or unpacked from. */
static void copy_shards_in(struct writer *w, int group)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct group_life *life = &w->life[group];
    struct plan_entry entry = writer_entry(w, PLAN_COPY_IN, group, PLAN_COPIES_IN);

    if (copies_in_place(g))
        entry.copy_in.gathered = life->gathered;
    else
        entry.copy_in.shard = life->shard =
            writer_add_buffer(w, PLAN_SHARD_ROW, (size_t)group, PLAN_GATHERED, g->row_elems * sizeof(float));
    entry.when = when_gathered(w, group);
    writer_append(w, &entry);
}

/*
 * Finds the largest sizes from which the group's codes are made and read. It is done once, because shards do
 * not change until the group is finished. The buffer has a few bytes and is kept for the whole program, so
 * that no gather waits for it.
 */
static void find_amax(struct writer *w, int group)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct group_life *life = &w->life[group];
    struct plan_entry entry = writer_entry(w, PLAN_AMAX, group, PLAN_GATHERS);

    if (g->n_coded == 0 || life->amax >= 0)
        return;
    life->amax = writer_add_buffer(w, PLAN_AMAX_LIST, (size_t)group, PLAN_GATHERED,
                                   (size_t)g->n_coded * sizeof(float));
    if (life->amax < 0)
        return;
    w->plan->buffers[life->amax].step_long = true;
    entry.amax.shard = life->shard;
    entry.amax.amax = life->amax;
    entry.when = when_gathered(w, group);
    writer_append(w, &entry);
}

void life_issue_gather(struct writer *w, int group)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct group_life *life = &w->life[group];
    const int slice = life->slice;
    struct plan_entry entry;

    if (!g->gathers || life->state != SHARDED)
        return;
    life->state = PENDING;
    life->gathered = life->shard = life->slice = -1;
    life->k = slice >= 0 ? g->k : g->W;
    if (g->W > 1 || g->n_coded > 0)
        life->gathered =
            writer_add_buffer(w, PLAN_GATHER_ROWS, (size_t)group, PLAN_GATHERED,
                              (slice >= 0 ? g->slice_row_bytes : g->gather_row_bytes) * (size_t)life->k);
    if (g->offloads && slice < 0)
        copy_shards_in(w, group);
    if (g->W == 1 && g->n_coded == 0)
        return; /* unpacking reads the shards, or their copy */
    find_amax(w, group);
    entry = writer_entry(w, PLAN_GATHER, group, PLAN_GATHERS);
    entry.gather = (struct plan_gather){ .slice = slice,
                                         .shard = life->shard,
                                         .amax = slice >= 0 ? -1 : life->amax,
                                         .gathered = life->gathered,
                                         .in_place = g->offloads && slice < 0 && copies_in_place(g),
                                         .k = life->k };
    entry.when = when_gathered(w, group);
    writer_append(w, &entry);
}

void life_need_whole(struct writer *w, int group)
{
    struct group_life *life = &w->life[group];
    struct plan_entry entry;

    life_issue_gather(w, group);
    if (life->state != PENDING)
        return;
    for (int part = 0; part < PLAN_N_PARTS; part++)
        life->whole[part] = whole_buffer(w, group, (enum plan_part)part);
    entry = writer_entry(w, PLAN_UNPACK, group, PLAN_COMPUTE);
    entry.unpack = (struct plan_unpack){ .gathered = life->gathered,
                                         .shard = life->gathered < 0 ? life->shard : -1,
                                         .amax = life->amax,
                                         .k = life->k };
    memcpy(entry.unpack.whole, life->whole, sizeof entry.unpack.whole);
    entry.when = when_gathered(w, group);
    writer_append(w, &entry);
    life->state = WHOLE;
    life->gathered_before = true;
}

void life_reshard(struct writer *w, int group, enum plan_when when)
{
    struct group_life *life = &w->life[group];
    struct plan_entry entry = writer_entry(w, PLAN_RESHARD, group, PLAN_COMPUTE);

    if (life->state != WHOLE)
        return;
    entry.reshard.whole = life->whole[PLAN_BOTH_WAYS];
    entry.when = when;
    writer_append(w, &entry);
    life->state = SHARDED;
}

void life_reshard_after_forward(struct writer *w, int group)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct group_life *life = &w->life[group];

    if (life->state == WHOLE && g->k > 0 && w->graph->training) {
        struct plan_entry entry = writer_entry(w, PLAN_SLICE, group, PLAN_COMPUTE);

        memcpy(entry.slice.whole, life->whole, sizeof entry.slice.whole);
        entry.slice.amax = life->amax;
        entry.slice.slice = life->slice =
            writer_add_buffer(w, PLAN_SLICE_ROW, (size_t)group, PLAN_GATHERED, g->slice_row_bytes);
        writer_append(w, &entry);
    }
    life_reshard(w, group, PLAN_ALWAYS);
}

int life_whole_of(const struct writer *w, int index)
{
    const struct plan_param *param = &w->plan->params[index];
    const struct group_life *life = &w->life[param->group];

    return life->state == WHOLE ? life->whole[param->part] : -1;
}

int life_grad_of(struct writer *w, int index)
{
    struct plan *plan = w->plan;
    const struct plan_param *param = &plan->params[index];
    const struct plan_group *g = &plan->groups[param->group];
    int *grad = &plan->grads[w->backward * plan->n_params + index];

    if (!g->reduces || *grad >= 0)
        return *grad;
    *grad = writer_add_buffer(w, PLAN_WHOLE_GRAD, (size_t)index, PLAN_REDUCED,
                              param->parameter->n_elems * fsdp_dtype_size(g->grad_dtype));
    if (*grad < 0 || !g->accumulates_whole)
        return *grad;
    plan->buffers[*grad].step_long = true;
    for (int b = w->backward + 1; b < plan->n_backwards; b++)
        plan->grads[b * plan->n_params + index] = *grad; /* later contributions are added to it */
    return *grad;
}

/*
 * Returns an entry of the reduction of the group's gradients. It runs when the gradients are complete: at the
 * latest in the last micro-step.
 */
static struct plan_entry reduction_entry(const struct writer *w, enum plan_entry_kind kind, int group,
                                         enum plan_stream stream)
{
    struct plan_entry entry = writer_entry(w, kind, group, stream);

    entry.when = w->plan->groups[group].accumulates_whole ? PLAN_LAST : PLAN_ALWAYS;
    return entry;
}

/*
 * Returns a buffer on the device for the gradient shards of a group that offloads. Returns -1 if no such
 * buffer is needed: the group does not offload, or this rank's packed row can be copied to host memory
 * unchanged. If the row is added to the sums of earlier micro-steps, those sums are copied into the buffer
 * first.
 */
static int sum_buffer(struct writer *w, int group, bool adds)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct plan_entry entry;
    int sum;

    if (!g->offloads ||
        (g->reduce_dtype == FSDP_F32 && !adds && g->division.after == 1.0f && g->unit->policy.hook == NULL))
        return -1;
    sum = writer_add_buffer(w, PLAN_SUM_ROW, (size_t)group, PLAN_REDUCED, g->grad_row_elems * sizeof(float));
    if (adds) {
        entry = reduction_entry(w, PLAN_COPY_SUM_IN, group, PLAN_COPIES_IN);
        entry.copy_sum_in = (struct plan_copy_sum_in){ .sum = sum, .after = w->life[group].copied_out };
        writer_append(w, &entry);
    }
    return sum;
}

/* Copy the gradient shards to host memory. Returns the buffer that they are copied from. */
static int copy_out(struct writer *w, int group, int packed, int sum)
{
    struct plan_entry entry = reduction_entry(w, PLAN_COPY_OUT, group, PLAN_COPIES_OUT);

    entry.copy_out = (struct plan_copy_out){ .packed = sum >= 0 ? -1 : packed, .sum = sum };
    writer_append(w, &entry);
    w->life[group].copied_out = sum >= 0 ? sum : packed;
    return w->life[group].copied_out;
}

/*
 * Write the reduction of the group's gradients:
 *   1. Pack them.
 *   2. Reduce-scatter them over the ranks that shard.
 *   3. All-reduce them over the replicas.
 *   4. Store the result, unless the reduction left it in the gradient shards.
 * An all-reduce that is deferred to the last of several micro-steps comes after the store. It reduces
 * gradient shards, which have the sums of all micro-steps by then. Returns the buffer whose last use leaves
 * the gradient shards final.
 */
static int reduce(struct writer *w, int group)
{
    struct plan *plan = w->plan;
    const struct plan_group *g = &plan->groups[group];
    const struct unit_policy *policy = &g->unit->policy;
    const bool adds = plan->options.accumulates && !g->accumulates_whole, hooks = policy->hook != NULL;
    const bool replicates = g->R > 1, defers = replicates && adds && policy->defers_all_reduce;
    const bool into_shards = g->reduce_dtype == FSDP_F32 && !adds && g->W > 1 && !replicates &&
                             g->division.after == 1.0f && !hooks && !g->offloads;
    const int packed = writer_add_buffer(w, PLAN_PACK_ROWS, (size_t)group, PLAN_REDUCED,
                                         g->grad_row_elems * (size_t)g->W * fsdp_dtype_size(g->reduce_dtype));
    struct plan_entry entry = reduction_entry(w, PLAN_PACK, group, PLAN_COMPUTE);
    int sum;

    entry.pack.packed = packed;
    writer_append(w, &entry);
    sum = sum_buffer(w, group, adds);
    if (g->W > 1) {
        entry = reduction_entry(w, PLAN_REDUCE, group, PLAN_REDUCES);
        entry.reduce = (struct plan_reduce){ .packed = packed, .into_shards = into_shards };
        writer_append(w, &entry);
    }
    if (replicates && !defers) {
        entry = reduction_entry(w, PLAN_ALL_REDUCE, group, PLAN_ALL_REDUCES);
        entry.all_reduce.packed = packed;
        writer_append(w, &entry);
    }
    if (!into_shards && (!g->offloads || sum >= 0)) {
        entry = reduction_entry(w, PLAN_STORE, group, replicates ? PLAN_ALL_REDUCES : PLAN_REDUCES);
        entry.store =
            (struct plan_store){ .packed = packed, .sum = sum, .adds = adds, .calls_hook = hooks && !defers };
        writer_append(w, &entry);
    }
    if (defers && in_last_backward(w)) {
        entry = reduction_entry(w, PLAN_ALL_REDUCE, group, PLAN_ALL_REDUCES);
        entry.all_reduce =
            (struct plan_all_reduce){ .packed = -1, .sum = sum, .after = packed, .calls_hook = hooks };
        entry.when = PLAN_LAST;
        writer_append(w, &entry);
    }
    return g->offloads ? copy_out(w, group, packed, sum) : packed;
}

/*
 * Writes the entry that says that gradient shards are final. It comes after every use of `packed`; -1: after
 * the backward, which wrote the shards.
 */
static void complete(struct writer *w, int group, int packed)
{
    struct plan_entry entry = writer_entry(w, PLAN_COMPLETE, group, PLAN_COMPUTE);

    entry.complete.after = packed;
    entry.when = w->plan->options.accumulates ? PLAN_LAST : PLAN_ALWAYS;
    writer_append(w, &entry);
}

void life_finish(struct writer *w, int group)
{
    const struct plan_group *g = &w->plan->groups[group];
    int packed = -1;

    if (!life_stays(w, group))
        life_reshard(w, group, PLAN_ALWAYS);
    else if (in_last_backward(w))
        life_reshard(w, group, PLAN_LAST);
    if (g->reduces && (in_last_backward(w) || !g->accumulates_whole))
        packed = reduce(w, group);
    if (g->unit->policy.post_hook != NULL && g->grad_row_elems > 0 && in_last_backward(w))
        complete(w, group, packed);
}
