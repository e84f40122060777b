/*
 * Runs a plan: entry by entry, each on its stream, after what it waits for. Every address is an offset that
 * the plan chose. Nothing is allocated here, and nothing is decided about order.
 *
 * A rank on which an entry fails must not leave the others waiting:
 *   1. The rank stops computing, but still enters every later collective, with whatever its buffers hold. All
 *      groups of ranks stay in step.
 *   2. The other ranks see wrong data and do not know it yet.
 *   3. After the last collective all ranks agree on what happened (agree.c).
 * Exception: if a collective itself failed, the program ends at once on every rank. A collective that the
 * user brought counts as failed even if it failed before it called anything, because its peers may wait for
 * something unknown. This rank then leaves the groups, and tells the ranks that wait in them why
 * (model_break()).
 */
#include "shard_runtime/engine/run_impl.h"

#include "shard_runtime/comm/device_pending.h"
#include "shard_runtime/comm/flight.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/overlap.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/timing.h"
#include "shard_runtime/engine/unshard.h"

/* Does the entry take part in this micro-step? */
static bool takes_part(const struct runner *r, const struct plan_entry *e)
{
    return e->when == PLAN_ALWAYS || (e->when == PLAN_FIRST && run_micro(r, e) == 0) ||
           (e->when == PLAN_LAST && run_micro(r, e) + 1 == r->in->n_micro);
}

static enum fsdp_status run_entry(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    static run_fn *const runs[] = {
        [PLAN_COPY_IN] = run_copy_in,   [PLAN_COPY_SUM_IN] = run_copy_sum_in,
        [PLAN_AMAX] = run_amax,         [PLAN_GATHER] = run_gather,
        [PLAN_UNPACK] = run_unpack,     [PLAN_SLICE] = run_slice,
        [PLAN_RESHARD] = NULL, /* no work: from here on other buffers may use its bytes */
        [PLAN_FORWARD] = run_forward,   [PLAN_LOSS] = run_loss,
        [PLAN_BACKWARD] = run_backward, [PLAN_PACK] = run_pack,
        [PLAN_REDUCE] = run_reduce,     [PLAN_ALL_REDUCE] = run_all_reduce,
        [PLAN_STORE] = run_store,       [PLAN_COPY_OUT] = run_copy_out,
        [PLAN_COMPLETE] = run_complete,
    };

    return runs[e->kind] != NULL ? runs[e->kind](r, e, err) : FSDP_OK;
}

/* Queue waits for the entries of other streams that the entry waits for. */
static void wait_on_device(const struct runner *r, const struct plan_entry *e)
{
    for (int s = 0; s < PLAN_N_STREAMS; s++)
        if (e->waits[s] >= 0)
            r->context->device.ops->wait(run_stream(r, e), r->program->events[e->waits[s]]);
}

/*
 * Show on the progress page whether the thread that computes waits for the second one, and how long it did.
 * Returns the time of the call, for the call at the end of the wait (`since_ns`; 0 at its beginning).
 */
static uint64_t show_wait(const struct runner *r, bool waits, uint64_t since_ns)
{
    const uint64_t now = (uint64_t)clock_now_ns();

    if (!waits)
        flight_spend(r->context->progress, FSDP_SPENT_WAIT, now - since_ns);
    atomic_store_explicit(&r->context->progress->threads[0].group, waits ? FSDP_WAITS_FOR_OTHER_THREAD : 0,
                          memory_order_relaxed);
    return now;
}

/* Waits for entries on the second thread that an entry of this thread depends on. */
static enum fsdp_status wait_beside(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    uint64_t began_ns;

    if (r->program->overlap == NULL)
        return FSDP_OK;
    began_ns = show_wait(r, true, 0);
    for (int s = 0; s < PLAN_N_STREAMS && status == FSDP_OK; s++)
        if (s != PLAN_COMPUTE && e->waits[s] >= 0)
            status = overlap_wait(r->program->overlap, e->waits[s], err);
    show_wait(r, false, began_ns);
    return status;
}

/* Run an entry. In training it is timed if the device times its work. */
static enum fsdp_status run_timed(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err)
{
    const bool timed =
        r->program == &r->model->training && timing_begin_entry(r->context, &r->program->plan, e);
    const enum fsdp_status status = run_entry(r, e, err);

    if (timed)
        timing_end(r->context, e->stream);
    return status;
}

/* Do other ranks wait for the entry? */
static bool communicates(const struct runner *r, const struct plan_entry *e)
{
    return plan_entry_collective(&r->program->plan, e) != PLAN_COLLECTIVE_NONE;
}

/* Is the entry a collective that the user of the unit replaced by a function of his own? */
static bool is_users_collective(const struct program *program, const struct plan_entry *e)
{
    const struct unit_policy *policy;

    if (e->kind != PLAN_GATHER && e->kind != PLAN_REDUCE)
        return false;
    policy = &program->plan.groups[e->index].unit->policy;
    return e->kind == PLAN_GATHER ? policy->all_gather != NULL : policy->reduce_scatter != NULL;
}

/*
 * Can other ranks be waiting because this rank's function of the user's failed before it made the call that
 * they made?
 */
static bool leaves_peers_waiting(const struct runner *r, const struct plan_entry *e)
{
    return is_users_collective(r->program, e) || (plan_calls_hook(e) && r->model->hooks_talk);
}

bool program_runs_users_function(const struct program *program, const struct plan_entry *e)
{
    return plan_calls_hook(e) || e->kind == PLAN_COMPLETE || is_users_collective(program, e);
}

/*
 * Returns how thoroughly the entry compares its collectives with those of other ranks before it queues them:
 * see step_agree.c.
 */
static enum device_calls compares(const struct runner *r, const struct plan_entry *e)
{
    if (r->program != &r->model->training)
        return DEVICE_CALLS_FIRST;
    if (!r->program->calls_known)
        return DEVICE_CALLS_ALL;
    return program_runs_users_function(r->program, e) ? DEVICE_CALLS_FIRST : DEVICE_CALLS_NONE;
}

/* After a failure of this rank: do what other ranks wait for, and nothing else. */
static enum fsdp_status run_entry_after_failure(const struct runner *r, const struct plan_entry *e,
                                                struct fsdp_err *err)
{
    if (e->kind == PLAN_UNPACK)
        run_skip_unpack(r, e);
    return communicates(r, e) ? run_entry(r, e, err) : FSDP_OK;
}

/*
 * Decide what a failed entry means. FSDP_OK: no group is broken, so the collectives go on, and the rank's
 * first such failure is kept. A failed device takes no part in collectives, so its failure is returned.
 */
static enum fsdp_status keep_failure(struct runner *r, const struct plan_entry *e, enum fsdp_status status,
                                     struct fsdp_err *err)
{
    bool before = false;

    fsdp_wrap(err, "%s of %s", plan_entry_name(e->kind), plan_entry_subject(&r->program->plan, e));
    if (status == FSDP_ERR_DEVICE || (communicates(r, e) && model_is_broken(r->model)) ||
        leaves_peers_waiting(r, e))
        return status;
    if (atomic_compare_exchange_strong(&r->failed, &before, true)) {
        r->failure = *err;
        r->failure.status = status;
    }
    return FSDP_OK;
}

/*
 * Run one entry after the entries that it waits for on streams of its own thread. Fails only if a group of
 * ranks is broken.
 */
static enum fsdp_status perform(struct runner *r, int entry, struct fsdp_err *err)
{
    const struct program *program = r->program;
    const struct plan_entry *e = &program->plan.entries[entry];
    const struct device_ops *device = r->context->device.ops;
    struct fsdp_err own = { 0 };
    enum fsdp_status status;

    wait_on_device(r, e);
    if (r->failed && plan_calls_hook(e) && r->model->hooks_talk) {
        /*
         * This rank calls no more hooks. Hooks of other ranks would wait for its collectives in vain, so it
         * leaves the groups.
         */
        r->leaves = true;
        return fsdp_fail(err, FSDP_ERR_PEER, "this rank failed, and hooks of others wait for it");
    }
    /* always so for groups on a device, which have no second thread; only they read `compares` */
    if (program->overlap == NULL)
        r->context->comms.compares = compares(r, e);
    status = r->failed ? run_entry_after_failure(r, e, &own) : run_timed(r, e, &own);
    if (program->overlap == NULL)
        r->context->comms.compares = DEVICE_CALLS_FIRST;
    if (status != FSDP_OK)
        status = keep_failure(r, e, status, &own);
    if (status != FSDP_OK)
        return fsdp_fail(err, status, "%s", own.message);
    if (e->records)
        device->record(program->events[entry], run_stream(r, e));
    return FSDP_OK;
}

static enum fsdp_status perform_beside(void *user, int entry, struct fsdp_err *err)
{
    struct runner *r = user;
    enum fsdp_status status;

    context_place(r->context, 1, r->program->places[entry]);
    status = perform(r, entry, err);
    context_place(r->context, 1, 0);
    return status;
}

/*
 * Entries that compute run on this thread. Entries that communicate go to the second thread, if there is one.
 * Every entry that they must not overtake has run, or was given to that thread before. `waits` says which
 * entries this thread must wait for.
 */
static enum fsdp_status run_or_give(struct runner *r, int entry, struct fsdp_err *err)
{
    const struct plan_entry *e = &r->program->plan.entries[entry];
    struct overlap *overlap = r->program->overlap;

    if (overlap == NULL)
        return perform(r, entry, err);
    if (e->stream != PLAN_COMPUTE) {
        overlap_give(overlap, perform_beside, r, entry);
        return FSDP_OK;
    }
    OK_OR_RETURN(wait_beside(r, e, err));
    return perform(r, entry, err);
}

/*
 * An entry that takes no part in this micro-step. The plan derived waits of other entries through it. So it
 * still waits, and an entry that waits for it waits for what came before it on its stream.
 */
static enum fsdp_status pass(struct runner *r, int entry, struct fsdp_err *err)
{
    const struct plan_entry *e = &r->program->plan.entries[entry];

    if (r->program->overlap != NULL && e->stream != PLAN_COMPUTE)
        return FSDP_OK; /* the second thread runs entries in the order that it is given */
    OK_OR_RETURN(wait_beside(r, e, err));
    wait_on_device(r, e);
    if (e->records)
        r->context->device.ops->record(r->program->events[entry], run_stream(r, e));
    return FSDP_OK;
}

/* Begin call number `call`. A forward takes the next batch. */
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

/* Run the entries of the next calls, until one breaks a group. */
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
        context_place(r->context, 0, program->places[entry]);
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
    /* even after a failure, because the second thread may still read memory of this call */
    if (program->overlap != NULL) {
        struct fsdp_err beside = { 0 };
        const uint64_t began_ns = show_wait(&r, true, 0);
        enum fsdp_status finished;

        finished = overlap_finish(program->overlap, &beside);
        show_wait(&r, false, began_ns);
        if (status == FSDP_OK && finished != FSDP_OK)
            status = fsdp_fail(err, finished, "%s", beside.message);
    }
    model_lend(model, false);
    if (r.leaves && status != FSDP_ERR_DEVICE && r.failure.status != FSDP_OK)
        status = fsdp_fail(err, r.failure.status, "%s", r.failure.message);
    if (status != FSDP_OK) /* no thread is in a collective now */
        model_break(model, status, err);
    for (int s = 0; s < PLAN_N_STREAMS && status == FSDP_OK; s++)
        status = context->device.ops->synchronize(context->streams[s], err);
    if (status == FSDP_OK && input->loss_sum != NULL)
        *input->loss_sum = program->loss_sum;
    if (status == FSDP_OK && input->n_targets != NULL)
        *input->n_targets = program->n_targets;
    /*
     * After a failure, waits for queued work: it still reads the batch, which belongs to the caller again
     * after this call.
     */
    for (int s = 0; s < PLAN_N_STREAMS && status != FSDP_OK; s++)
        (void)context->device.ops->synchronize(context->streams[s], NULL);
    device_pending_look(context->comms.pending);
    context_place(context, 0, 0);
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
