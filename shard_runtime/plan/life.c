/*
 * The life of a group in the program: its parameters are gathered, whole, freed; its gradients packed, reduced,
 * stored.
 */
#include <string.h>

#include "shard_runtime/plan/writer.h"

/* Micro-steps in which parameters that stay from one to the next are gathered. */
static enum plan_when when_gathered(const struct writer *w, int group)
{
    return !w->life[group].gathered_before && life_stays(w, group) ? PLAN_FIRST : PLAN_ALWAYS;
}

/* Is what is being written of the last backward of the program? What only a step's last one does is of that one. */
static bool in_last_backward(const struct writer *w)
{
    return w->backward + 1 == w->plan->n_backwards;
}

/* Parameters that stay from one micro-step to the next live in one buffer for the whole step. */
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

/* Of a group that offloads: its shards from host memory, to where they are gathered or unpacked from. */
static void copy_shards_in(struct writer *w, int group)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct group_life *life = &w->life[group];
    const bool in_place =
        g->W > 1 && g->param_dtype == FSDP_F32 && g->n_coded == 0; /* the row needs no conversion */
    struct plan_entry *entry;

    if (!in_place)
        life->shard =
            writer_add_buffer(w, PLAN_SHARD_ROW, (size_t)group, PLAN_GATHERED, g->row_elems * sizeof(float));
    entry = writer_add_entry(w, PLAN_COPY_IN, group, PLAN_COPIES_IN);
    if (entry == NULL)
        return;
    entry->shard = life->shard;
    entry->gathered = in_place ? life->gathered : -1;
    entry->when = when_gathered(w, group);
}

/* The largest sizes that the group's codes are made and read by, once: shards do not change before it is finished. Their
 * buffer is theirs for the whole program: a few bytes, for which no gather should have to wait. */
static void find_amax(struct writer *w, int group)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct plan_entry *entry;
    int amax;

    if (g->n_coded == 0 || w->life[group].amax >= 0)
        return;
    amax = writer_add_buffer(w, PLAN_AMAX_LIST, (size_t)group, PLAN_GATHERED,
                             (size_t)g->n_coded * sizeof(float));
    entry = writer_add_entry(w, PLAN_AMAX, group, PLAN_GATHERS);
    if (entry == NULL)
        return;
    w->plan->buffers[amax].step_long = true;
    entry->shard = w->life[group].shard;
    entry->amax = w->life[group].amax = amax;
    entry->when = when_gathered(w, group);
}

void life_issue_gather(struct writer *w, int group)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct group_life *life = &w->life[group];
    struct plan_entry *entry;

    if (!g->gathers || life->state != SHARDED)
        return;
    life->state = PENDING;
    life->gathered = life->shard = -1;
    life->k = life->slice >= 0 ? g->k : g->W;
    if (g->W > 1 || g->n_coded > 0)
        life->gathered = writer_add_buffer(w, PLAN_GATHER_ROWS, (size_t)group, PLAN_GATHERED,
                                           (life->slice >= 0 ? g->slice_row_bytes : g->gather_row_bytes) *
                                               (size_t)life->k);
    if (g->offloads && life->slice < 0)
        copy_shards_in(w, group);
    if (g->W == 1 && g->n_coded == 0)
        return; /* its shards are all there is: unpacking reads them where they lie, or their copy */
    find_amax(w, group);
    entry = writer_add_entry(w, PLAN_GATHER, group, PLAN_GATHERS);
    if (entry == NULL)
        return;
    entry->gathered = life->gathered;
    entry->shard = life->shard;
    entry->slice = life->slice;
    entry->amax = life->slice >= 0 ? -1 : life->amax; /* a slice is encoded already */
    entry->k = life->k;
    life->slice = -1;
    entry->when = when_gathered(w, group);
}

void life_need_whole(struct writer *w, int group)
{
    struct group_life *life = &w->life[group];
    struct plan_entry *entry;

    life_issue_gather(w, group);
    if (life->state != PENDING)
        return;
    for (int part = 0; part < PLAN_N_PARTS; part++)
        life->whole[part] = whole_buffer(w, group, (enum plan_part)part);
    entry = writer_add_entry(w, PLAN_UNPACK, group, PLAN_COMPUTE);
    if (entry == NULL)
        return;
    entry->gathered = life->gathered;
    entry->shard = life->gathered < 0 ? life->shard : -1;
    entry->k = life->k;
    memcpy(entry->whole, life->whole, sizeof entry->whole);
    entry->amax = life->amax;
    entry->when = when_gathered(w, group);
    life->state = WHOLE;
    life->gathered_before = true;
}

void life_reshard(struct writer *w, int group, enum plan_when when)
{
    struct group_life *life = &w->life[group];
    struct plan_entry *entry;

    if (life->state != WHOLE)
        return;
    entry = writer_add_entry(w, PLAN_RESHARD, group, PLAN_COMPUTE);
    if (entry == NULL)
        return;
    memcpy(entry->whole, life->whole, sizeof entry->whole);
    entry->when = when;
    life->state = SHARDED;
}

void life_reshard_after_forward(struct writer *w, int group)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct group_life *life = &w->life[group];
    struct plan_entry *entry;
    int slice;

    if (life->state == WHOLE && g->k > 0 && w->graph->training) {
        slice = writer_add_buffer(w, PLAN_SLICE_ROW, (size_t)group, PLAN_GATHERED, g->slice_row_bytes);
        entry = writer_add_entry(w, PLAN_SLICE, group, PLAN_COMPUTE);
        if (entry == NULL)
            return;
        memcpy(entry->whole, life->whole, sizeof entry->whole);
        entry->amax = life->amax;
        entry->slice = life->slice = slice;
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
        plan->grads[b * plan->n_params + index] = *grad; /* they add to it */
    return *grad;
}

static struct plan_entry *reduction_entry(struct writer *w, enum plan_entry_kind kind, int group, int packed,
                                          enum plan_stream stream)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct plan_entry *entry = writer_add_entry(w, kind, group, stream);

    if (entry == NULL)
        return NULL;
    entry->packed = packed;
    entry->when = g->accumulates_whole ? PLAN_LAST : PLAN_ALWAYS;
    return entry;
}

/* Room for a sum of gradients, where the row of `packed` is not what the gradient shards in host memory are to be; else -1.
 * Where it is added to what earlier micro-steps left there, that is copied in. */
static int sum_buffer(struct writer *w, int group, bool adds)
{
    const struct plan_group *g = &w->plan->groups[group];
    struct plan_entry *entry;
    int sum;

    if (!g->offloads ||
        (g->reduce_dtype == FSDP_F32 && !adds && g->division.after == 1.0f && g->unit->policy.hook == NULL))
        return -1;
    sum = writer_add_buffer(w, PLAN_SUM_ROW, (size_t)group, PLAN_REDUCED, g->grad_row_elems * sizeof(float));
    entry = adds ? reduction_entry(w, PLAN_COPY_IN, group, -1, PLAN_COPIES_IN) : NULL;
    if (entry != NULL) {
        entry->sum = sum;
        entry->behind = w->life[group].copied_out;
    }
    return sum;
}

/* The gradient shards are in host memory: what they are to be goes there. Returns the buffer it comes from. */
static int copy_out(struct writer *w, int group, int packed, int sum)
{
    struct plan_entry *entry =
        reduction_entry(w, PLAN_COPY_OUT, group, sum >= 0 ? -1 : packed, PLAN_COPIES_OUT);

    if (entry != NULL)
        entry->sum = sum;
    w->life[group].copied_out = sum >= 0 ? sum : packed;
    return w->life[group].copied_out;
}

/*
 * Pack; reduce-scatter over the ranks that shard; all-reduce over those that replicate; and where the result is not
 * what the gradient shards hold, or is added to them, store. An all-reduce that is left to the last of several
 * micro-steps is one of the shards, in which their sums are by then. Returns the buffer whose last use leaves the gradient
 * shards final.
 */
static int reduce(struct writer *w, int group)
{
    struct plan *plan = w->plan;
    const struct plan_group *g = &plan->groups[group];
    const struct unit_policy *policy = &g->unit->policy;
    const bool adds = plan->options.accumulates && !g->accumulates_whole;
    const bool replicates = g->R > 1, defers = replicates && adds && policy->defers_all_reduce;
    const bool into_shards = g->reduce_dtype == FSDP_F32 && !adds && g->W > 1 && !replicates &&
                             g->division.after == 1.0f && policy->hook == NULL && !g->offloads;
    const int packed = writer_add_buffer(w, PLAN_PACK_ROWS, (size_t)group, PLAN_REDUCED,
                                         g->grad_row_elems * (size_t)g->W * fsdp_dtype_size(g->reduce_dtype));
    struct plan_entry *entry;
    int sum;

    (void)reduction_entry(w, PLAN_PACK, group, packed, PLAN_COMPUTE);
    sum = sum_buffer(w, group, adds);
    if (g->W > 1) {
        entry = reduction_entry(w, PLAN_REDUCE, group, packed, PLAN_REDUCES);
        if (entry != NULL)
            entry->into_shards = into_shards;
    }
    if (replicates && !defers)
        (void)reduction_entry(w, PLAN_ALL_REDUCE, group, packed, PLAN_ALL_REDUCES);
    if (!into_shards && (!g->offloads || sum >= 0)) {
        entry = reduction_entry(w, PLAN_STORE, group, packed, replicates ? PLAN_ALL_REDUCES : PLAN_REDUCES);
        if (entry != NULL) {
            entry->adds = adds;
            entry->sum = sum;
            entry->calls_hook = policy->hook != NULL && !defers;
        }
    }
    if (defers && in_last_backward(w)) {
        entry = reduction_entry(w, PLAN_ALL_REDUCE, group, -1, PLAN_ALL_REDUCES);
        if (entry != NULL) {
            entry->behind = packed;
            entry->sum = sum;
            entry->when = PLAN_LAST;
            entry->calls_hook = policy->hook != NULL;
        }
    }
    return g->offloads ? copy_out(w, group, packed, sum) : packed;
}

/* Behind whatever made the shards final, where the optimizer computes. */
static void complete(struct writer *w, int group, int packed)
{
    struct plan_entry *entry = writer_add_entry(w, PLAN_COMPLETE, group, PLAN_COMPUTE);

    if (entry == NULL)
        return;
    entry->behind = packed;
    entry->when = w->plan->options.accumulates ? PLAN_LAST : PLAN_ALWAYS;
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
