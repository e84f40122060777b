/*
 * Running the entries of groups: copies from and to host memory, gathers, reductions, and the conversions
 * between them.
 */
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/run_impl.h"
#include "shard_runtime/engine/unshard.h"

static const struct plan_group *layout_of(const struct runner *r, const struct plan_entry *e)
{
    return &r->program->plan.groups[e->index];
}

static const struct param_group *group_of(const struct runner *r, const struct plan_entry *e)
{
    return &r->model->groups[e->index];
}

static const struct model_mesh *mesh_of(const struct runner *r, const struct plan_entry *e)
{
    return model_mesh(r->model, e->index);
}

/* The ranks that sum the gradients of the group's shards. */
static struct fsdp_comm *reduces_of(const struct runner *r, const struct plan_entry *e)
{
    const struct model_mesh *mesh = mesh_of(r, e);

    return mesh->own_reduces != NULL ? mesh->own_reduces : mesh->shards;
}

/*
 * This rank's row of the group on the device: its shards or, where they are in host memory, the copy of them.
 * The copy is the buffer `shard`, or with -1 this rank's row of the buffer `gathered`.
 */
static float *device_row(const struct runner *r, const struct plan_entry *e, int shard, int gathered)
{
    if (!layout_of(r, e)->offloads)
        return group_of(r, e)->shards;
    return shard >= 0 ? run_at(r, shard)
                      : param_group_gathered_row(group_of(r, e), mesh_of(r, e)->shards, run_at(r, gathered));
}

/* This rank's row of the buffer `packed`, in which a reduction left its result; NULL if `packed` is -1. */
static void *row_of(const struct runner *r, const struct plan_entry *e, int packed)
{
    return packed < 0 ? NULL : param_group_own_row(group_of(r, e), mesh_of(r, e)->shards, run_at(r, packed));
}

/* Where gradients add up on the device: in the buffer `sum`, or with -1 in the gradient shards. */
static float *sum_of(const struct runner *r, const struct plan_entry *e, int sum)
{
    return sum >= 0 ? run_at(r, sum) : group_of(r, e)->grads;
}

/*
 * Copies between host and device are queued. An entry that needs the data waits for the event after the copy.
 */
enum fsdp_status run_copy_in(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(r, e);

    (void)err;
    if (unshard_whole(r->model, e->index) == NULL || layout->n_coded > 0)
        r->context->device.ops->copy(
            run_stream(r, e), device_row(r, e, e->copy_in.shard, e->copy_in.gathered), group_of(r, e)->shards,
            layout->row_elems * sizeof(float), DEVICE_COPY_TO);
    return FSDP_OK;
}

enum fsdp_status run_copy_sum_in(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    (void)err;
    if (run_micro(r, e) > 0)
        r->context->device.ops->copy(run_stream(r, e), run_at(r, e->copy_sum_in.sum), group_of(r, e)->grads,
                                     layout_of(r, e)->grad_row_elems * sizeof(float), DEVICE_COPY_TO);
    return FSDP_OK;
}

enum fsdp_status run_amax(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    return param_group_find_amax(group_of(r, e), &r->context->device, mesh_of(r, e)->shards, r->model->tensor,
                                 device_row(r, e, e->amax.shard, -1), run_at(r, e->amax.amax),
                                 run_stream(r, e), err);
}

enum fsdp_status run_gather(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct plan_gather *gather = &e->gather;

    if (gather->slice >= 0)
        return param_group_gather_slices(group_of(r, e), model_part(r->model, mesh_of(r, e), gather->k),
                                         run_at(r, gather->slice), run_at(r, gather->gathered),
                                         run_stream(r, e), err);
    if (unshard_whole(r->model, e->index) != NULL)
        return FSDP_OK; /* the user has gathered the parameters by hand; run_unpack() uses those */
    return param_group_gather(group_of(r, e), &r->context->device, mesh_of(r, e)->shards,
                              device_row(r, e, gather->shard, gather->gathered), run_at(r, gather->amax),
                              run_at(r, gather->gathered), run_stream(r, e), err);
}

enum fsdp_status run_slice(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    void *const whole[] = { run_at(r, e->slice.whole[PLAN_FORWARD_ONLY]),
                            run_at(r, e->slice.whole[PLAN_BOTH_WAYS]) };

    (void)err;
    param_group_slice(group_of(r, e), &r->context->device, whole,
                      mesh_of(r, e)->shard_rank % layout_of(r, e)->k, run_at(r, e->slice.amax),
                      run_at(r, e->slice.slice), run_stream(r, e));
    return FSDP_OK;
}

/*
 * The whole parameters that the user gathered by hand for this unpacking; NULL: none. Slices are never
 * gathered by hand.
 */
static const char *gathered_by_hand(const struct runner *r, const struct plan_entry *e)
{
    return e->unpack.k == layout_of(r, e)->W ? unshard_whole(r->model, e->index) : NULL;
}

void run_skip_unpack(const struct runner *r, const struct plan_entry *e)
{
    if (gathered_by_hand(r, e) != NULL)
        unshard_take(r->model, e->index);
}

enum fsdp_status run_unpack(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct plan_unpack *unpack = &e->unpack;
    const struct plan_group *layout = layout_of(r, e);
    void *const whole[] = { run_at(r, unpack->whole[PLAN_FORWARD_ONLY]),
                            run_at(r, unpack->whole[PLAN_BOTH_WAYS]) };
    const char *by_hand = gathered_by_hand(r, e);

    (void)err;
    if (by_hand == NULL) {
        param_group_unpack(group_of(r, e), &r->context->device, run_at(r, unpack->gathered), unpack->k,
                           unpack->gathered < 0 ? device_row(r, e, unpack->shard, -1) : NULL,
                           run_at(r, unpack->amax), whole, run_stream(r, e));
        return FSDP_OK;
    }
    for (int part = 0; part < PLAN_N_PARTS; part++)
        if (layout->whole_bytes[part] > 0)
            r->context->device.ops->copy(run_stream(r, e), whole[part],
                                         by_hand + plan_part_offset(layout, (enum plan_part)part),
                                         layout->whole_bytes[part], DEVICE_COPY_WITHIN);
    unshard_take(r->model, e->index);
    return FSDP_OK;
}

enum fsdp_status run_pack(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(r, e);

    (void)err;
    for (int i = 0; i < layout->n_params; i++)
        r->program->whole_grads[i] = run_at(r, plan_grad(&r->program->plan, e, layout->params[i]));
    param_group_pack(group_of(r, e), &r->context->device, reduces_of(r, e), r->program->whole_grads,
                     run_at(r, e->pack.packed), run_stream(r, e));
    return FSDP_OK;
}

enum fsdp_status run_reduce(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    return param_group_reduce(group_of(r, e), reduces_of(r, e), run_at(r, e->reduce.packed),
                              e->reduce.into_shards, run_stream(r, e), err);
}

static uint64_t calls_so_far(const struct runner *r)
{
    return atomic_load_explicit(&r->context->progress->collective_seq, memory_order_relaxed);
}

/*
 * Call the unit's hook on reduced gradients, and note whether it calls collectives of its own. Where a second
 * thread communicates, this runs on that thread.
 */
static enum fsdp_status call_hook(const struct runner *r, const struct plan_entry *e, void *row,
                                  enum fsdp_dtype dtype, struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(r, e);
    const struct unit_policy *policy = &layout->unit->policy;
    const uint64_t before = calls_so_far(r);
    const enum fsdp_status status =
        policy->hook(row, layout->grad_row_elems, dtype, run_stream(r, e), policy->hook_user, err);

    r->model->hooks_talk = r->model->hooks_talk || calls_so_far(r) != before;
    return status;
}

enum fsdp_status run_all_reduce(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    float *sum = sum_of(r, e, e->all_reduce.sum);
    void *row = row_of(r, e, e->all_reduce.packed);
    const enum fsdp_status status =
        param_group_all_reduce(group_of(r, e), mesh_of(r, e)->replicas, row != NULL ? row : sum,
                               row != NULL ? layout_of(r, e)->reduce_dtype : FSDP_F32, run_stream(r, e), err);

    /*
     * If the hook calls collectives, it is called even if the other thread of this rank has failed since
     * perform() looked. Hooks of other ranks wait for it.
     */
    return status == FSDP_OK && e->all_reduce.calls_hook && (!r->failed || r->model->hooks_talk)
               ? call_hook(r, e, sum, FSDP_F32, err)
               : status;
}

enum fsdp_status run_store(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    void *row = row_of(r, e, e->store.packed);

    if (e->store.calls_hook)
        OK_OR_RETURN(call_hook(r, e, row, layout_of(r, e)->reduce_dtype, err));
    param_group_store(group_of(r, e), &r->context->device, row, sum_of(r, e, e->store.sum),
                      e->store.adds && run_micro(r, e) > 0, run_stream(r, e));
    return FSDP_OK;
}

enum fsdp_status run_copy_out(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct plan_copy_out *out = &e->copy_out;

    (void)err;
    r->context->device.ops->copy(run_stream(r, e), group_of(r, e)->grads,
                                 out->sum >= 0 ? run_at(r, out->sum) : row_of(r, e, out->packed),
                                 layout_of(r, e)->grad_row_elems * sizeof(float), DEVICE_COPY_FROM);
    return FSDP_OK;
}

enum fsdp_status run_complete(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct unit_policy *policy = &layout_of(r, e)->unit->policy;
    const enum fsdp_status status = r->context->device.ops->synchronize(run_stream(r, e), err);

    r->model->completed = r->model->in_step[e->index].final = true;
    return status == FSDP_OK ? policy->post_hook(r->model, e->index, policy->post_hook_user, err) : status;
}
