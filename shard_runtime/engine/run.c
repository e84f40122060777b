/*
 * The one loop that runs a plan: entry by entry, each on its stream, after what it waits for. Every address
 * is an offset that the plan chose; nothing is allocated and nothing decided here.
 *
 * A rank on which an entry fails computes no more, but takes part in the collectives that are left, with whatever lies in
 * its buffers: the other ranks wait for it nowhere, all groups stay in step, and behind the last collective the ranks agree
 * on what happened (agree.c). Only a collective that failed itself ends a program at once, on every rank: and one that the
 * program's user brought counts as such also where it failed before it called anything, as nobody knows what its peers wait for.
 * The groups are left then, with words for whoever waits in one (model_break()).
 */
#include <stdatomic.h>

#include "shard_runtime/comm/device_pending.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/overlap.h"
#include "shard_runtime/engine/timing.h"
#include "shard_runtime/engine/unshard.h"

struct runner {
    struct program *program;
    struct fsdp_model *model;
    const struct program_input *in;
    struct fsdp_context *context;
    _Atomic bool
        failed; /* here, on either thread; what follows is set by the first, and read when both are done */
    struct fsdp_err failure; /* its status too */
    _Atomic bool leaves;     /* because of it, the groups: who waits is told why */
};

static void *at(const struct runner *r, int buffer)
{
    return buffer < 0 ? NULL : r->program->arena + r->program->plan.buffers[buffer].offset;
}

static struct device_stream *stream_of(const struct runner *r, const struct plan_entry *e)
{
    return r->context->streams[e->stream];
}

/* The number of the entry's micro-step in the step. */
static size_t micro_of(const struct runner *r, const struct plan_entry *e)
{
    return r->in->micro + (size_t)e->backward;
}

static bool takes_part(const struct runner *r, const struct plan_entry *e)
{
    return e->when == PLAN_ALWAYS || (e->when == PLAN_FIRST && micro_of(r, e) == 0) ||
           (e->when == PLAN_LAST && micro_of(r, e) + 1 == r->in->n_micro);
}

/* Do gradients of an earlier micro-step lie where this one's go? */
static bool adds_to_earlier(const struct runner *r, const struct plan_entry *e,
                            const struct plan_group *group)
{
    return micro_of(r, e) > 0 && (!group->reduces || group->accumulates_whole);
}

/* --- operations
 * ------------------------------------------------------------------------------------------------ */

static void resolve(const struct runner *r, const struct plan_entry *e, const struct graph_op *op,
                    struct nn_run *run)
{
    const struct plan *plan = &r->program->plan;
    const struct fsdp_batch *batch = &r->program->batches[op->forward];

    *run = (struct nn_run){ .numerics = &r->context->numerics,
                            .device = &r->context->device,
                            .stream = stream_of(r, e),
                            .seed = r->model->options.seed,
                            .first_sample = batch->first_sample,
                            .tensor = model_tensor_comm(r->model, op->attrs.tensor),
                            .scratch = at(r, e->scratch),
                            .output = at(r, e->output) };
    for (int i = 0; i < op->n_inputs; i++)
        run->input[i] = op->inputs[i]->producer < 0 ? batch->input : at(r, e->input[i]);
    for (int i = 0; i < op->n_params; i++) {
        const struct plan_param *param = &plan->params[plan_param_index(plan, op->params[i])];
        const char *whole = at(r, e->params[i]);

        run->params[i] = whole != NULL
                             ? (const void *)(whole + param->whole_offset * fsdp_dtype_size(op->param_dtype))
                             : r->model->groups[param->group].shards + param->row_offset;
    }
    for (int i = 0; i < GRAPH_MAX_SAVED; i++)
        run->saved[i] = at(r, e->saved[i]);
}

static enum fsdp_status run_forward(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct graph_op *op = r->program->graph.ops[e->index];
    struct nn_run run, next;

    if (e->with_before)
        return FSDP_OK;
    resolve(r, e, op, &run);
    if (!e->with_next)
        return nn_forward(&run, op, err);
    resolve(r, e + 1, r->program->graph.ops[e[1].index], &next);
    return nn_forward_fused(&run, op, &next, r->program->graph.ops[e[1].index], err);
}

/* sum += term, both of the value's dtype. */
static void add_value(const struct runner *r, const struct plan_entry *e, const struct fsdp_value *value,
                      void *sum, const void *term)
{
    struct numerics *numerics = &r->context->numerics;
    const size_t n_elems = graph_value_elems(value);

    if (value->dtype == FSDP_F32 && e->stream == PLAN_COMPUTE) /* what communicates enters no numerics */
        numerics->ops->add(numerics, stream_of(r, e), sum, term, sum, n_elems);
    else
        r->context->device.ops->cast(stream_of(r, e), sum, value->dtype, term, value->dtype, n_elems, 1.0f,
                                     true);
}

/* Returns the operation. */
static const struct graph_op *resolve_backward(const struct runner *r, const struct plan_entry *e,
                                               struct nn_run *run)
{
    const struct plan *plan = &r->program->plan;
    const struct graph_op *op = r->program->graph.ops[e->index];

    resolve(r, e, op, run);
    run->d_output = at(r, e->d_output);
    run->bias_before = e->bias_before;
    for (int i = 0; i < op->n_inputs; i++) {
        const bool by_way = e->temporary[i] >= 0;

        run->d_input[i] = at(r, by_way ? e->temporary[i] : e->d_input[i]);
        run->add_d_input[i] = e->add_d_input[i] && !by_way;
    }
    for (int i = 0; i < op->n_params; i++) {
        const struct plan_param *param = &plan->params[plan_param_index(plan, op->params[i])];
        const struct plan_group *group = &plan->groups[param->group];
        void *whole = at(r, e->d_param[i]);

        if (!param->trains)
            continue;
        run->d_param[i] = whole != NULL ? whole : r->model->groups[param->group].grads + param->grad_offset;
        run->d_param_dtype[i] = whole != NULL ? group->grad_dtype : FSDP_F32;
        run->add_d_param[i] = e->add_d_param[i] || adds_to_earlier(r, e, group);
    }
    return op;
}

static enum fsdp_status run_two_backwards(const struct runner *r, const struct plan_entry *e,
                                          struct fsdp_err *err)
{
    struct nn_run run, next, before;
    const struct graph_op *op = resolve_backward(r, e, &run), *next_op = resolve_backward(r, e + 1, &next),
                          *before_op = NULL;

    if (e->bias_of >= 0)
        before_op = resolve_backward(r, &r->program->plan.entries[e->bias_of], &before);
    return nn_backward_fused(&run, op, &next, next_op, before_op != NULL ? &before : NULL, before_op, err);
}

static enum fsdp_status run_backward(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct graph_op *op;
    struct nn_run run;
    enum fsdp_status status;

    if (e->with_before)
        return FSDP_OK;
    if (e->with_next)
        return run_two_backwards(r, e, err);
    op = resolve_backward(r, e, &run);
    status = nn_backward(&run, op, err);
    for (int i = 0; i < op->n_inputs && status == FSDP_OK; i++)
        if (e->temporary[i] >= 0)
            add_value(r, e, op->inputs[i], at(r, e->d_input[i]), run.d_input[i]);
    return status;
}

static void run_loss(const struct runner *r, const struct plan_entry *e)
{
    const struct fsdp_value *logits = r->program->graph.forwards[e->index].result;
    struct numerics *numerics = &r->context->numerics;
    const struct numerics_loss loss = { .dtype = logits->dtype,
                                        .logits = at(r, e->input[0]),
                                        .targets = r->program->batches[e->index].targets,
                                        .dlogits = at(r, e->d_output),
                                        .rows = nn_rows(logits),
                                        .vocab = logits->features,
                                        .row_stride = logits->row_stride,
                                        .scale = r->in->scale };

    if (loss.targets == NULL)
        return;
    if (numerics->ops->loss != NULL)
        numerics->ops->loss(numerics, stream_of(r, e), &loss, &r->program->loss_sum, &r->program->n_targets);
    else
        numerics->ops->cross_entropy(numerics, stream_of(r, e), loss.logits, loss.targets, loss.dlogits,
                                     loss.rows, loss.vocab, loss.scale, &r->program->loss_sum,
                                     &r->program->n_targets);
}

/* --- groups
 * ---------------------------------------------------------------------------------------------------- */

/* Who sums the gradients of a group over the ranks that shard it. */
static struct fsdp_comm *reduces_of(const struct runner *r, const struct plan_entry *e)
{
    const struct model_mesh *mesh = model_mesh(r->model, e->index);

    return mesh->own_reduces != NULL ? mesh->own_reduces : mesh->shards;
}

static void run_pack(const struct runner *r, const struct plan_entry *e)
{
    const struct plan *plan = &r->program->plan;
    const struct plan_group *group = &plan->groups[e->index];

    for (int i = 0; i < group->n_params; i++)
        r->program->whole_grads[i] = at(r, plan_grad(plan, e, group->params[i]));
    param_group_pack(&r->model->groups[e->index], &r->context->device, reduces_of(r, e),
                     r->program->whole_grads, at(r, e->packed), stream_of(r, e));
}

/* This rank's row of the group on the device: its shards, or what was copied in of them. */
static float *device_row(const struct runner *r, const struct plan_entry *e)
{
    const struct param_group *group = &r->model->groups[e->index];

    if (!r->program->plan.groups[e->index].offloads)
        return group->shards;
    return e->shard >= 0
               ? at(r, e->shard)
               : param_group_gathered_row(group, model_mesh(r->model, e->index)->shards, at(r, e->gathered));
}

/* Queued, as all copies between host and device: who needs what arrives waits for the event behind it. */
static void run_copy_in(const struct runner *r, const struct plan_entry *e)
{
    const struct param_group *group = &r->model->groups[e->index];
    const struct plan_group *layout = &r->program->plan.groups[e->index];
    const struct device_ops *device = r->context->device.ops;

    if (e->sum >= 0 && micro_of(r, e) > 0)
        device->copy(stream_of(r, e), at(r, e->sum), group->grads, layout->grad_row_elems * sizeof(float),
                     DEVICE_COPY_TO);
    else if (e->sum < 0 && (unshard_whole(r->model, e->index) == NULL || layout->n_coded > 0))
        device->copy(stream_of(r, e), device_row(r, e), group->shards, layout->row_elems * sizeof(float),
                     DEVICE_COPY_TO);
}

static enum fsdp_status run_amax(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    return param_group_find_amax(&r->model->groups[e->index], &r->context->device,
                                 model_mesh(r->model, e->index)->shards, r->model->tensor, device_row(r, e),
                                 at(r, e->amax), stream_of(r, e), err);
}

static enum fsdp_status run_gather(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct param_group *group = &r->model->groups[e->index];
    const struct model_mesh *mesh = model_mesh(r->model, e->index);

    if (e->slice < 0 && unshard_whole(r->model, e->index) != NULL)
        return FSDP_OK; /* gathered by hand, for the entry that unpacks */
    if (e->slice >= 0)
        return param_group_gather_slices(group, model_part(r->model, mesh, e->k), at(r, e->slice),
                                         at(r, e->gathered), stream_of(r, e), err);
    return param_group_gather(group, &r->context->device, mesh->shards, device_row(r, e), at(r, e->amax),
                              at(r, e->gathered), stream_of(r, e), err);
}

static void run_slice(const struct runner *r, const struct plan_entry *e)
{
    void *const whole[] = { at(r, e->whole[PLAN_FORWARD_ONLY]), at(r, e->whole[PLAN_BOTH_WAYS]) };

    param_group_slice(&r->model->groups[e->index], &r->context->device, whole,
                      model_mesh(r->model, e->index)->shard_rank % r->program->plan.groups[e->index].k,
                      at(r, e->amax), at(r, e->slice), stream_of(r, e));
}

static const void *gathered_by_hand(const struct runner *r, const struct plan_entry *e)
{
    return e->k == r->program->plan.groups[e->index].W ? unshard_whole(r->model, e->index) : NULL;
}

static void run_unpack(const struct runner *r, const struct plan_entry *e)
{
    const struct plan_group *group = &r->program->plan.groups[e->index];
    void *const whole[] = { at(r, e->whole[PLAN_FORWARD_ONLY]), at(r, e->whole[PLAN_BOTH_WAYS]) };
    const char *by_hand = gathered_by_hand(r, e);

    if (by_hand == NULL) {
        param_group_unpack(&r->model->groups[e->index], &r->context->device, at(r, e->gathered), e->k,
                           e->gathered < 0 ? device_row(r, e) : NULL, at(r, e->amax), whole, stream_of(r, e));
        return;
    }
    for (int part = 0; part < PLAN_N_PARTS; part++)
        if (group->whole_bytes[part] > 0)
            r->context->device.ops->copy(stream_of(r, e), whole[part],
                                         by_hand + plan_part_offset(group, (enum plan_part)part),
                                         group->whole_bytes[part], DEVICE_COPY_WITHIN);
    unshard_take(r->model, e->index);
}

static enum fsdp_status run_reduce(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    return param_group_reduce(&r->model->groups[e->index], reduces_of(r, e), at(r, e->packed), e->into_shards,
                              stream_of(r, e), err);
}

/* The row that a reduction left in the packed buffer; NULL: the entry has none. */
static void *row_of(const struct runner *r, const struct plan_entry *e)
{
    return e->packed < 0 ? NULL
                         : param_group_own_row(&r->model->groups[e->index],
                                               model_mesh(r->model, e->index)->shards, at(r, e->packed));
}

/* Where gradients add up: on the device, in the shards or in what they are to be. */
static float *sum_of(const struct runner *r, const struct plan_entry *e)
{
    return e->sum >= 0 ? at(r, e->sum) : r->model->groups[e->index].grads;
}

static uint64_t calls_so_far(const struct runner *r)
{
    return atomic_load_explicit(&r->context->progress->collective_seq, memory_order_relaxed);
}

static enum fsdp_status call_hook(const struct runner *r, const struct plan_entry *e, void *row,
                                  enum fsdp_dtype dtype, struct fsdp_err *err)
{
    const struct plan_group *group = &r->program->plan.groups[e->index];
    const uint64_t before = calls_so_far(r);
    const enum fsdp_status status = group->unit->policy.hook(
        row, group->grad_row_elems, dtype, stream_of(r, e), group->unit->policy.hook_user, err);

    /* Where a second thread communicates this is that one. */
    r->model->hooks_talk = r->model->hooks_talk || calls_so_far(r) != before;
    return status;
}

static enum fsdp_status run_all_reduce(const struct runner *r, const struct plan_entry *e,
                                       struct fsdp_err *err)
{
    const struct param_group *group = &r->model->groups[e->index];
    void *row = row_of(r, e);
    enum fsdp_status status = param_group_all_reduce(
        group, model_mesh(r->model, e->index)->replicas, row != NULL ? row : sum_of(r, e),
        row != NULL ? r->program->plan.groups[e->index].reduce_dtype : FSDP_F32, stream_of(r, e), err);

    /* One that talks is called where this rank failed meanwhile, too: before, perform() would have left. */
    return status == FSDP_OK && e->calls_hook && (!r->failed || r->model->hooks_talk)
               ? call_hook(r, e, sum_of(r, e), FSDP_F32, err)
               : status;
}

static enum fsdp_status run_store(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    void *row = row_of(r, e);
    enum fsdp_status status = FSDP_OK;

    if (e->calls_hook)
        status = call_hook(r, e, row, r->program->plan.groups[e->index].reduce_dtype, err);
    if (status == FSDP_OK)
        param_group_store(&r->model->groups[e->index], &r->context->device, row, sum_of(r, e),
                          e->adds && micro_of(r, e) > 0, stream_of(r, e));
    return status;
}

static void run_copy_out(const struct runner *r, const struct plan_entry *e)
{
    r->context->device.ops->copy(
        stream_of(r, e), r->model->groups[e->index].grads, e->sum >= 0 ? at(r, e->sum) : row_of(r, e),
        r->program->plan.groups[e->index].grad_row_elems * sizeof(float), DEVICE_COPY_FROM);
}

static enum fsdp_status run_complete(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const struct unit_policy *policy = &r->program->plan.groups[e->index].unit->policy;
    enum fsdp_status status = r->context->device.ops->synchronize(stream_of(r, e), err);

    r->model->completed = r->model->in_step[e->index].final = true;
    return status == FSDP_OK ? policy->post_hook(r->model, e->index, policy->post_hook_user, err) : status;
}

/* --- the loop
 * -------------------------------------------------------------------------------------------------- */

static enum fsdp_status run_entry(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    switch (e->kind) {
    case PLAN_AMAX:
        return run_amax(r, e, err);
    case PLAN_GATHER:
        return run_gather(r, e, err);
    case PLAN_UNPACK:
        run_unpack(r, e);
        return FSDP_OK;
    case PLAN_SLICE:
        run_slice(r, e);
        return FSDP_OK;
    case PLAN_RESHARD:
        return FSDP_OK; /* its bytes are another buffer's from here on: the plan saw to that */
    case PLAN_FORWARD:
        return run_forward(r, e, err);
    case PLAN_LOSS:
        run_loss(r, e);
        return FSDP_OK;
    case PLAN_BACKWARD:
        return run_backward(r, e, err);
    case PLAN_PACK:
        run_pack(r, e);
        return FSDP_OK;
    case PLAN_REDUCE:
        return run_reduce(r, e, err);
    case PLAN_ALL_REDUCE:
        return run_all_reduce(r, e, err);
    case PLAN_STORE:
        return run_store(r, e, err);
    case PLAN_COPY_IN:
        run_copy_in(r, e);
        return FSDP_OK;
    case PLAN_COPY_OUT:
        run_copy_out(r, e);
        return FSDP_OK;
    case PLAN_COMPLETE:
        return run_complete(r, e, err);
    }
    return FSDP_OK;
}

static const char *subject(const struct program *program, const struct plan_entry *e)
{
    if (e->kind == PLAN_FORWARD || e->kind == PLAN_BACKWARD)
        return program->graph.ops[e->index]->name;
    return e->kind == PLAN_LOSS ? "the loss" : program->plan.groups[e->index].unit->path;
}

static void wait_on_device(const struct runner *r, const struct plan_entry *e)
{
    for (int s = 0; s < PLAN_N_STREAMS; s++)
        if (e->waits[s] >= 0)
            r->context->device.ops->wait(stream_of(r, e), r->program->events[e->waits[s]]);
}

/* Wait for what the second thread was given and an entry that computes needs. */
static enum fsdp_status wait_beside(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    for (int s = 0; s < PLAN_N_STREAMS && status == FSDP_OK && r->program->overlap != NULL; s++)
        if (s != PLAN_COMPUTE && e->waits[s] >= 0)
            status = overlap_wait(r->program->overlap, e->waits[s], err);
    return status;
}

/* The same, of training timed where the device times its work. */
static enum fsdp_status run_timed(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const bool timed =
        r->program == &r->model->training && timing_begin_entry(r->context, &r->program->plan, e);
    const enum fsdp_status status = run_entry(r, e, err);

    if (timed)
        timing_end(r->context, e->stream);
    return status;
}

/* Do other ranks wait for it? */
static bool communicates(const struct runner *r, const struct plan_entry *e)
{
    const struct graph_op *op =
        e->kind == PLAN_FORWARD || e->kind == PLAN_BACKWARD ? r->program->graph.ops[e->index] : NULL;

    return e->kind == PLAN_AMAX || e->kind == PLAN_GATHER || e->kind == PLAN_REDUCE ||
           e->kind == PLAN_ALL_REDUCE ||
           (op != NULL && (e->kind == PLAN_FORWARD ? op->kind->reduces_output : op->kind->reduces_grad));
}

/* May others be waiting in a function of the user's for what this rank's call of it did not come to? */
static bool leaves_peers_waiting(const struct runner *r, const struct plan_entry *e)
{
    const struct unit_policy *policy = e->kind == PLAN_GATHER || e->kind == PLAN_REDUCE || e->calls_hook
                                           ? &r->program->plan.groups[e->index].unit->policy
                                           : NULL;

    return policy != NULL && ((e->kind == PLAN_GATHER && policy->all_gather != NULL) ||
                              (e->kind == PLAN_REDUCE && policy->reduce_scatter != NULL) ||
                              (e->calls_hook && r->model->hooks_talk));
}

bool program_runs_users_function(const struct program *program, const struct plan_entry *e)
{
    const struct unit_policy *policy = e->kind == PLAN_GATHER || e->kind == PLAN_REDUCE
                                           ? &program->plan.groups[e->index].unit->policy
                                           : NULL;

    return e->calls_hook || e->kind == PLAN_COMPLETE ||
           (policy != NULL && e->kind == PLAN_GATHER && policy->all_gather != NULL) ||
           (policy != NULL && e->kind == PLAN_REDUCE && policy->reduce_scatter != NULL);
}

static enum device_calls compares(const struct runner *r, const struct plan_entry *e)
{
    if (r->program != &r->model->training)
        return DEVICE_CALLS_FIRST;
    if (!r->program->calls_known)
        return DEVICE_CALLS_ALL;
    return program_runs_users_function(r->program, e) ? DEVICE_CALLS_FIRST : DEVICE_CALLS_NONE;
}

/* After a failure: what is to be done all the same. */
static enum fsdp_status run_entry_after_failure(const struct runner *r, const struct plan_entry *e,
                                                struct fsdp_err *err)
{
    if (e->kind == PLAN_UNPACK && gathered_by_hand(r, e) != NULL)
        unshard_take(r->model, e->index); /* the next gather of the group is one again */
    return communicates(r, e) ? run_entry(r, e, err) : FSDP_OK;
}

/* The first failure of this rank that breaks no group is kept; FSDP_OK: the collectives go on. A device that failed has no part in
 * them. */
static enum fsdp_status keep_failure(struct runner *r, const struct plan_entry *e, enum fsdp_status status,
                                     struct fsdp_err *err)
{
    bool before = false;

    fsdp_wrap(err, "%s of %s", plan_entry_name(e->kind), subject(r->program, e));
    if (status == FSDP_ERR_DEVICE || (communicates(r, e) && model_is_broken(r->model)) ||
        leaves_peers_waiting(r, e))
        return status;
    if (atomic_compare_exchange_strong(&r->failed, &before, true)) {
        r->failure = *err;
        r->failure.status = status;
    }
    return FSDP_OK;
}

/* One entry, after what it waits for on streams of its own thread. Fails only where its group is broken. */
static enum fsdp_status perform(struct runner *r, int entry, struct fsdp_err *err)
{
    const struct program *program = r->program;
    const struct plan_entry *e = &program->plan.entries[entry];
    const struct device_ops *device = r->context->device.ops;
    struct fsdp_err own = { 0 };
    enum fsdp_status status;

    wait_on_device(r, e);
    if (r->failed && e->calls_hook && r->model->hooks_talk) {
        /* It calls no hooks any more, and the others' hooks would wait for what its own calls. */
        r->leaves = true;
        return fsdp_fail(err, FSDP_ERR_PEER, "this rank failed, and hooks of others wait for it");
    }
    if (program->overlap == NULL) /* groups of a device; they have no second thread */
        r->context->comms.compares = compares(r, e);
    status = r->failed ? run_entry_after_failure(r, e, &own) : run_timed(r, e, &own);
    if (program->overlap == NULL)
        r->context->comms.compares = DEVICE_CALLS_FIRST;
    if (status != FSDP_OK)
        status = keep_failure(r, e, status, &own);
    if (status != FSDP_OK)
        return fsdp_fail(err, status, "%s", own.message);
    if (e->records)
        device->record(program->events[entry], stream_of(r, e));
    return FSDP_OK;
}

static enum fsdp_status perform_beside(void *user, int entry, struct fsdp_err *err)
{
    return perform(user, entry, err);
}

/*
 * What computes is done here. What communicates is given to the second thread, where there is one: everything before
 * it in the program that it must not overtake is done or given already. What it must be waited for is in `waits`.
 */
static enum fsdp_status run_or_give(struct runner *r, int entry, struct fsdp_err *err)
{
    const struct plan_entry *e = &r->program->plan.entries[entry];
    struct overlap *overlap = r->program->overlap;
    enum fsdp_status status = FSDP_OK;

    if (overlap == NULL)
        return perform(r, entry, err);
    if (e->stream != PLAN_COMPUTE) {
        overlap_give(overlap, perform_beside, r, entry);
        return FSDP_OK;
    }
    status = wait_beside(r, e, err);
    return status == FSDP_OK ? perform(r, entry, err) : status;
}

/*
 * An entry that takes no part in this micro-step. The plan derived the order of others through it: it waits all the
 * same, and who waits for it waits for what came before it on its stream.
 */
static enum fsdp_status pass(struct runner *r, int entry, struct fsdp_err *err)
{
    const struct plan_entry *e = &r->program->plan.entries[entry];
    enum fsdp_status status;

    if (r->program->overlap != NULL && e->stream != PLAN_COMPUTE)
        return FSDP_OK; /* the second thread keeps the order it is given */
    status = wait_beside(r, e, err);
    if (status != FSDP_OK)
        return status;
    wait_on_device(r, e);
    if (e->records)
        r->context->device.ops->record(r->program->events[entry], stream_of(r, e));
    return FSDP_OK;
}

/* Call number `call` begins, which takes a batch if it is a forward. */
static void begin_call(struct runner *r, int call, const struct fsdp_batch **batch)
{
    struct program *program = r->program;

    fsdp_context_phase(r->context,
                       call < program->plan.n_forwards ? FSDP_PHASE_FORWARD : FSDP_PHASE_BACKWARD);
    if (call >= program->plan.n_forwards || r->in->fails)
        return;
    program->batches[call] = *(*batch)++;
    program_io_send(program, call, &program->batches[call]);
}

static enum fsdp_status run_entries(struct runner *r, struct fsdp_err *err)
{
    struct program *program = r->program;
    const int until = program->next_call + r->in->n_calls;
    const struct fsdp_batch *batch = r->in->batches;
    enum fsdp_status status = FSDP_OK;
    int entry = program->next_entry, call = program->next_call - 1;

    for (; entry < program->plan.n_entries && status == FSDP_OK; entry++) {
        const struct plan_entry *e = &program->plan.entries[entry];

        if (e->call >= until)
            break;
        for (; call < e->call; call++)
            begin_call(r, call + 1, &batch);
        if (!takes_part(r, e)) {
            status = pass(r, entry, err);
            continue;
        }
        context_alive(r->context);
        if (program->observe != NULL)
            program->observe(program->observer, entry);
        status = run_or_give(r, entry, err);
    }
    program->next_entry = entry;
    program->next_call = until;
    return status;
}

enum fsdp_status program_run(struct program *program, struct fsdp_model *model,
                             const struct program_input *input, struct fsdp_err *err)
{
    struct fsdp_context *context = program->context;
    struct runner r = {
        .program = program, .model = model, .in = input, .context = context, .failed = input->fails
    };
    enum fsdp_status status;

    if (input->fails && input->why != NULL)
        r.failure = *input->why;
    program->loss_sum = input->loss_sum != NULL ? *input->loss_sum : 0;
    program->n_targets = input->n_targets != NULL ? *input->n_targets : 0;
    status = model_draw(model, err);
    model_lend(model, program->overlap != NULL);
    if (status == FSDP_OK)
        status = run_entries(&r, err);
    if (program->overlap != NULL) { /* also after a failure: it reads what is ours */
        struct fsdp_err beside = { 0 };
        const enum fsdp_status finished = overlap_finish(program->overlap, &beside);

        if (status == FSDP_OK && finished != FSDP_OK)
            status = fsdp_fail(err, finished, "%s", beside.message);
    }
    model_lend(model, false);
    if (r.leaves && status != FSDP_ERR_DEVICE && r.failure.status != FSDP_OK)
        status = fsdp_fail(err, r.failure.status, "%s", r.failure.message);
    if (status != FSDP_OK) /* no thread is in a collective any more */
        model_break(model, status, err);
    for (int s = 0; s < PLAN_N_STREAMS && status == FSDP_OK; s++)
        status = context->device.ops->synchronize(context->streams[s], err);
    if (status == FSDP_OK && input->loss_sum != NULL)
        *input->loss_sum = program->loss_sum;
    if (status == FSDP_OK && input->n_targets != NULL)
        *input->n_targets = program->n_targets;
    /* What is queued still reads the batch, which is the caller's again. */
    for (int s = 0; s < PLAN_N_STREAMS && status != FSDP_OK; s++)
        (void)context->device.ops->synchronize(context->streams[s], NULL);
    device_pending_look(context->comms.pending);
    if (status == FSDP_OK && r.failed && !input->fails)
        status = fsdp_fail(err, r.failure.status, "%s", r.failure.message);
    unshard_give_back(model);
    if (status != FSDP_OK || program->next_call == program_calls(program)) {
        if (program->observe != NULL && status == FSDP_OK)
            program->observe(program->observer, program->plan.n_entries);
        program_rewind(program);
    }
    return status;
}

int program_calls(const struct program *program)
{
    return program->plan.n_forwards + program->plan.n_backwards;
}

void program_rewind(struct program *program)
{
    program->next_call = program->next_entry = 0;
}
