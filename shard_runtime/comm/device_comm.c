#include "shard_runtime/comm/device_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/comm/device_memory.h"
#include "shard_runtime/comm/device_pending.h"
#include "shard_runtime/comm/staging.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"

struct device_comm {
    struct device_comms *comms;
    struct fsdp_comm *host;     /* the same members */
    struct device_group *group; /* NULL: staged */
    struct staging staging;
    struct device_comm *next;
};

/*
 * Ranks compare their calls before they queue them, by an all-gather over host memory that blocks. That takes
 * time, so:
 *   - a training step stops comparing once its ranks have compared their plans and every call of a whole step
 *     (step.c);
 *   - other calls (by hand, in evaluations, in functions of the user) are compared while they are among the
 *     first COMPARED_CALLS of their group.
 * Calls that differ later hang, and the flight recorder shows them.
 */
enum { COMPARED_CALLS = 4096 };

static struct device_comm *state_of(const struct fsdp_comm *comm)
{
    return comm->state;
}

static bool is_device(const struct fsdp_comm *comm, const void *buffer)
{
    struct device *device = state_of(comm)->comms->device;

    return buffer != NULL && device->ops->owns(device, buffer);
}

static struct device_stream *stream_of(const struct fsdp_comm *comm)
{
    return comm->stream != NULL ? comm->stream : state_of(comm)->comms->stream;
}

static void abort_all(struct device_comms *comms)
{
    for (struct device_comm *c = comms->open; c != NULL; c = c->next)
        if (c->group != NULL)
            comms->collectives->abort(c->group);
}

/*
 * Runs a collective on the group over host memory. If it fails, the whole world has failed: work that is
 * queued on the device would wait for ever, and so would a thread that frees device memory. So all groups of
 * the device are aborted.
 */
static enum fsdp_status run_on_host(struct fsdp_comm *comm, struct comm_work work, struct fsdp_err *err)
{
    struct fsdp_comm *host = state_of(comm)->host;
    enum fsdp_status status;

    if (work.call.op == COMM_SCALED_SUM)
        return fsdp_fail(err, FSDP_ERR_ARG, "a scaled sum of host memory");
    work.call.sequence = ++host->sequence;
    status = host->ops->run(host, &work, err);
    if (status != FSDP_OK)
        abort_all(state_of(comm)->comms);
    return status;
}

/*
 * Compares `mine` with the calls of all ranks, unless it need not be compared. A mismatch aborts the device's
 * groups.
 */
static enum fsdp_status compare(struct fsdp_comm *comm, const struct comm_call *mine, struct fsdp_err *err)
{
    const enum device_calls compares = state_of(comm)->comms->compares;
    struct comm_work work = {
        .call = { .kind = COMM_ALL_GATHER, .size_bytes = sizeof *mine, .dtype = FSDP_U8 }, .send = mine
    };
    struct comm_call *all;
    enum fsdp_status status;

    if (comm->size == 1 || compares == DEVICE_CALLS_NONE ||
        (compares == DEVICE_CALLS_FIRST && comm->sequence > COMPARED_CALLS))
        return FSDP_OK;
    work.recv = all = alloc_array((size_t)comm->size, sizeof *all);
    if (all == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "comparing collectives: out of memory");
    status = run_on_host(comm, work, err);
    for (int r = 0; r < comm->size && status == FSDP_OK; r++) {
        status = comm_call_compare(mine, comm->rank, &all[r], r, err);
        if (status != FSDP_OK)
            abort_all(state_of(comm)->comms);
    }
    free(all);
    return status;
}

/*
 * Notes that the collective is queued but not done: its entry in the recorder ends when the stream has passed
 * it.
 */
static void leave_pending(struct fsdp_comm *comm)
{
    struct device_comms *comms = state_of(comm)->comms;
    struct fsdp_flight_entry *entry = comm->entry;

    if (entry == NULL)
        return;
    comm->entry = NULL;
    device_pending_add(&comms->pending, comms->device, link_progress(comms->link), stream_of(comm), entry);
}

/* Hands a collective to the device's own library, in order with the call's stream. */
static enum fsdp_status queue(struct fsdp_comm *comm, const struct comm_work *work, struct fsdp_err *err)
{
    const struct device_collectives *library = state_of(comm)->comms->collectives;
    struct device_group *group = state_of(comm)->group;
    struct device_stream *stream = stream_of(comm);
    const struct comm_call *call = &work->call;
    const enum fsdp_dtype dtype = (enum fsdp_dtype)call->dtype;
    const enum fsdp_reduce_op op = call->op == COMM_SCALED_SUM ? FSDP_SUM : (enum fsdp_reduce_op)call->op;
    const size_t n_elems = comm_call_elems(call);

    switch (call->kind) {
    case COMM_ALL_GATHER:
        return library->all_gather(group, work->send, work->recv, n_elems, dtype, stream, err);
    case COMM_REDUCE_SCATTER:
        return library->reduce_scatter(group, work->send, work->recv, n_elems, dtype, op,
                                       call->op == COMM_SCALED_SUM ? work->factor : 1.0f, stream, err);
    case COMM_ALL_REDUCE:
        return library->all_reduce(group, work->recv, n_elems, dtype, op, stream, err);
    default:
        return library->broadcast(group, work->recv, n_elems, (int)call->root, stream, err);
    }
}

static enum fsdp_status queue_compared(struct fsdp_comm *comm, const struct comm_work *work,
                                       struct fsdp_err *err)
{
    struct device_comm *state = state_of(comm);

    OK_OR_RETURN(compare(comm, &work->call, err));
    /* The library is told once of the memory that it will move. */
    if (comm->size > 1)
        OK_OR_RETURN(device_memory_use(state->comms, state->group, work->send, err));
    if (comm->size > 1)
        OK_OR_RETURN(device_memory_use(state->comms, state->group, work->recv, err));
    OK_OR_RETURN(queue(comm, work, err));
    leave_pending(comm);
    return FSDP_OK;
}

static enum fsdp_status device_run(struct fsdp_comm *comm, const struct comm_work *work, struct fsdp_err *err)
{
    struct device_comm *state = state_of(comm);

    if (!is_device(comm, work->recv)) /* also a barrier, which has no buffer */
        return run_on_host(comm, *work, err);
    if (state->group != NULL)
        return queue_compared(comm, work, err);
    if (comm->size > 1)
        return staging_run(&state->staging, stream_of(comm), work, err);
    /* A group of one gives back what it is given. */
    if (work->send != work->recv && work->call.size_bytes > 0)
        state->comms->device->ops->copy(stream_of(comm), work->recv, work->send,
                                        (size_t)work->call.size_bytes, DEVICE_COPY_WITHIN);
    return FSDP_OK;
}

static void device_comm_close(struct fsdp_comm *comm)
{
    struct device_comm *state = comm->state;
    struct device_comm **at = &state->comms->open;

    while (*at != NULL && *at != state)
        at = &(*at)->next;
    if (*at != NULL)
        *at = state->next;
    if (state->group != NULL) {
        if (comm->broken.status != FSDP_OK)
            state->comms->collectives->abort(state->group);
        device_memory_leave(state->comms, state->group);
        state->comms->collectives->close(state->group);
    }
    staging_fini(&state->staging);
    fsdp_comm_destroy(state->host);
    free(state);
}

/* Aborting frees the members that wait on the device. The words reach them over the group on host memory. */
static void device_fail(struct fsdp_comm *comm, enum fsdp_status status, const char *words)
{
    comm_fail(state_of(comm)->host, status, words);
    abort_all(state_of(comm)->comms);
}

static bool device_hear(struct fsdp_comm *comm, struct fsdp_err *err)
{
    return comm_hear(state_of(comm)->host, 0, err);
}

static enum fsdp_status device_split(struct fsdp_comm *comm, struct fsdp_comm *part, const int *ranks,
                                     struct fsdp_err *err);

#define SLOTS                                                                                                \
    .name = "device", .close = device_comm_close, .run = device_run, .split = device_split,                  \
    .fail = device_fail, .wraps = true, .hear = device_hear

static const struct comm_ops staged_ops = { SLOTS };
static const struct comm_ops queued_ops = { SLOTS, .scales = true };

/* Rank 0 makes the group's identity and puts it into the agent's store, where the other ranks get it. */
static enum fsdp_status share_id(const struct device_comms *comms, const struct fsdp_comm *host,
                                 struct device_group_config *config, struct fsdp_err *err)
{
    char key[COMM_NAME_BYTES + 16];
    size_t size_bytes = sizeof config->id;

    snprintf(key, sizeof key, "%s/%s", comms->collectives->name, host->name);
    if (host->rank == 0) {
        OK_OR_RETURN(comms->collectives->make_id(comms->device, config->id, err));
        return host->size > 1 ? link_put(comms->link, key, config->id, sizeof config->id, -1, err) : FSDP_OK;
    }
    OK_OR_RETURN(link_get(comms->link, key, config->id, &size_bytes, NULL, err));
    if (size_bytes != sizeof config->id)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "an identity of %zu bytes, not %zu", size_bytes,
                         sizeof config->id);
    return FSDP_OK;
}

static enum fsdp_status open_group(struct device_comm *state, struct fsdp_err *err)
{
    struct device_comms *comms = state->comms;
    struct device_group_config config = { .name = state->host->name,
                                          .device = comms->device,
                                          .rank = state->host->rank,
                                          .size = state->host->size,
                                          .watch = device_comms_watch,
                                          .watch_user = comms };
    enum fsdp_status status = share_id(comms, state->host, &config, err);

    if (status == FSDP_OK)
        status = comms->collectives->open(&state->group, &config, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "opening %s for group %s", comms->collectives->name, state->host->name);
    return status;
}

/* Fills in `comm` as a group around `host`, which it owns from now on, also after a failure. */
static enum fsdp_status dress(struct fsdp_comm *comm, struct fsdp_comm *host, struct device_comms *comms,
                              struct fsdp_err *err)
{
    struct device_comm *state = alloc_array(1, sizeof *state);
    enum fsdp_status status = FSDP_OK;

    if (state == NULL) {
        fsdp_comm_destroy(host);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a group: out of memory");
    }
    state->comms = comms;
    state->host = host;
    staging_init(&state->staging, comms->device, host);
    comm->ops = comms->collectives != NULL ? &queued_ops : &staged_ops;
    comm->link = comms->link;
    comm->rank = host->rank;
    comm->size = host->size;
    snprintf(comm->name, sizeof comm->name, "%s", host->name);
    /* Both groups are one on the progress page, so the numbers of collectives continue those of `host`. */
    comm->number = host->number;
    comm->sequence = host->sequence;
    comm->state = state;
    if (comms->collectives != NULL)
        status = open_group(state, err);
    if (status != FSDP_OK) {
        device_comm_close(comm);
        return status;
    }
    state->next = comms->open;
    comms->open = state;
    return FSDP_OK;
}

static enum fsdp_status device_split(struct fsdp_comm *comm, struct fsdp_comm *part, const int *ranks,
                                     struct fsdp_err *err)
{
    struct fsdp_comm *host;

    OK_OR_RETURN(comm_split(&host, state_of(comm)->host, part->name, ranks, part->size, err));
    return dress(part, host, state_of(comm)->comms, err);
}

enum fsdp_status device_comm_wrap(struct fsdp_comm **out, struct fsdp_comm *host, struct device_comms *comms,
                                  struct fsdp_err *err)
{
    struct fsdp_comm *comm = alloc_array(1, sizeof *comm);
    enum fsdp_status status;

    *out = NULL;
    if (comm == NULL) {
        fsdp_comm_destroy(host);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a group: out of memory");
    }
    status = dress(comm, host, comms, err);
    if (status != FSDP_OK) {
        free(comm);
        return status;
    }
    *out = comm;
    return FSDP_OK;
}

enum fsdp_status device_comms_watch(void *user, struct fsdp_err *err)
{
    struct device_comms *comms = user;
    enum fsdp_status status = link_check(comms->link, err);

    device_pending_look(comms->pending);
    for (struct device_comm *c = comms->open; c != NULL && status == FSDP_OK; c = c->next)
        if (c->group != NULL)
            status = comms->collectives->poll(c->group, err);
    if (status != FSDP_OK)
        abort_all(comms);
    return status;
}

void device_comms_fini(struct device_comms *comms)
{
    device_pending_destroy(comms->pending);
    comms->pending = NULL;
}

enum fsdp_status device_comms_are_alone(struct fsdp_comm *world, const struct link *link,
                                        const struct device *device, bool *alone, struct fsdp_err *err)
{
    struct place {
        uint32_t node;
        char id[DEVICE_ID_BYTES];
    } mine = { .node = link_hello(link)->node_rank }, *all;
    const int size = fsdp_comm_size(world);
    enum fsdp_status status;

    *alone = true;
    device->ops->identify(device, mine.id);
    all = alloc_array((size_t)size, sizeof *all);
    if (all == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "finding out who shares a GPU: out of memory");
    status = fsdp_all_gather(world, &mine, all, sizeof mine, FSDP_U8, NULL, err);
    for (int a = 0; a < size && status == FSDP_OK; a++)
        for (int b = 0; b < a && *alone; b++)
            *alone = all[a].node != all[b].node || memcmp(all[a].id, all[b].id, DEVICE_ID_BYTES) != 0;
    free(all);
    return status;
}
