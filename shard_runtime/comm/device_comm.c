#include "shard_runtime/comm/device_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/comm/device_memory.h"
#include "shard_runtime/comm/device_pending.h"
#include "shard_runtime/comm/staging.h"
#include "shard_runtime/core/alloc.h"

struct device_comm {
    struct device_comms *comms;
    struct fsdp_comm *host;     /* the same members */
    struct device_group *group; /* NULL: staged */
    struct staging staging;
    struct device_comm *next;
};

/*
 * Calls are compared between ranks before they are queued, by an all-gather over host memory for which each rank waits. A step of
 * training stops that once its ranks have compared their plans and every call of a whole step (step.c). Calls outside of such a step
 * (by hand, of evaluations, in a function of the user's) are compared as long as they are among a group's first COMPARED_CALLS. What
 * hangs later is found in the flight recorder.
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

/* The answer of the group over host memory. A failure of it is one of the world: what is queued on the device would wait for
 * ever, and with it whoever gives back memory of it. */
static enum fsdp_status of_host(const struct fsdp_comm *comm, enum fsdp_status status)
{
    if (status != FSDP_OK)
        abort_all(state_of(comm)->comms);
    return status;
}

/* The group over host memory, about to make its next call. */
static struct fsdp_comm *host_of(const struct fsdp_comm *comm)
{
    struct fsdp_comm *host = state_of(comm)->host;

    host->sequence++;
    return host;
}

static enum fsdp_status compare(struct fsdp_comm *comm, enum comm_kind kind, size_t size_bytes,
                                enum fsdp_dtype dtype, unsigned op, int root, struct fsdp_err *err)
{
    const struct comm_call mine = comm_call_of(comm, kind, size_bytes, dtype, (enum fsdp_reduce_op)op, root);
    const enum device_calls compares = state_of(comm)->comms->compares;
    struct comm_call *all;
    enum fsdp_status status;

    if (comm->size == 1 || compares == DEVICE_CALLS_NONE ||
        (compares == DEVICE_CALLS_FIRST && comm->sequence > COMPARED_CALLS))
        return FSDP_OK;
    all = alloc_array((size_t)comm->size, sizeof *all);
    if (all == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "comparing collectives: out of memory");
    status = host_of(comm)->ops->all_gather(state_of(comm)->host, &mine, all, sizeof mine, FSDP_U8, err);
    for (int r = 0; r < comm->size && status == FSDP_OK; r++)
        status = comm_call_compare(&mine, comm->rank, &all[r], r, err);
    free(all);
    return of_host(comm, status);
}

/* The device's own collective is about to be queued: it learns what it will move. */
static enum fsdp_status prepare(struct fsdp_comm *comm, const void *send, const void *recv,
                                struct fsdp_err *err)
{
    struct device_comm *state = state_of(comm);
    enum fsdp_status status = FSDP_OK;

    if (comm->size > 1)
        status = device_memory_use(state->comms, state->group, send, err);
    if (comm->size > 1 && status == FSDP_OK)
        status = device_memory_use(state->comms, state->group, recv, err);
    return status;
}

/* It is queued, which is not done: the recorder's entry ends with it. */
static enum fsdp_status queued(struct fsdp_comm *comm, enum fsdp_status status)
{
    struct device_comms *comms = state_of(comm)->comms;
    struct fsdp_flight_entry *entry = comm->entry;

    if (status != FSDP_OK || entry == NULL)
        return status;
    comm->entry = NULL;
    device_pending_add(&comms->pending, comms->device, stream_of(comm), entry);
    return FSDP_OK;
}

/* Of a group of one: what it is given is what it gives. */
static enum fsdp_status move(struct fsdp_comm *comm, const void *from, void *to, size_t size_bytes)
{
    if (from != to && size_bytes > 0)
        state_of(comm)->comms->device->ops->copy(stream_of(comm), to, from, size_bytes, DEVICE_COPY_WITHIN);
    return FSDP_OK;
}

static enum fsdp_status device_all_gather(struct fsdp_comm *comm, const void *send, void *recv,
                                          size_t n_elems, enum fsdp_dtype dtype, struct fsdp_err *err)
{
    struct device_comm *state = state_of(comm);
    const size_t size_bytes = n_elems * fsdp_dtype_size(dtype);
    enum fsdp_status status;

    if (!is_device(comm, recv))
        return of_host(comm, host_of(comm)->ops->all_gather(state->host, send, recv, n_elems, dtype, err));
    if (state->group == NULL)
        return comm->size == 1
                   ? move(comm, send, recv, size_bytes)
                   : staging_all_gather(&state->staging, stream_of(comm), send, recv, n_elems, dtype, err);
    status = compare(comm, COMM_ALL_GATHER, size_bytes, dtype, FSDP_SUM, -1, err);
    if (status == FSDP_OK)
        status = prepare(comm, send, recv, err);
    if (status == FSDP_OK)
        status = queued(comm, state->comms->collectives->all_gather(state->group, send, recv, n_elems, dtype,
                                                                    stream_of(comm), err));
    return status;
}

/* By the device's own collectives. `op` as comm_call has it. */
static enum fsdp_status queue_reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv,
                                             size_t n_elems, enum fsdp_dtype dtype, unsigned op, float factor,
                                             struct fsdp_err *err)
{
    const struct device_comm *state = state_of(comm);
    enum fsdp_status status =
        compare(comm, COMM_REDUCE_SCATTER, n_elems * fsdp_dtype_size(dtype), dtype, op, -1, err);

    if (status == FSDP_OK)
        status = prepare(comm, send, recv, err);
    if (status == FSDP_OK)
        status = queued(comm, state->comms->collectives->reduce_scatter(
                                  state->group, send, recv, n_elems, dtype,
                                  op == COMM_SCALED_SUM ? FSDP_SUM : (enum fsdp_reduce_op)op, factor,
                                  stream_of(comm), err));
    return status;
}

static enum fsdp_status device_reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv,
                                              size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                              struct fsdp_err *err)
{
    struct device_comm *state = state_of(comm);

    if (!is_device(comm, recv))
        return of_host(comm,
                       host_of(comm)->ops->reduce_scatter(state->host, send, recv, n_elems, dtype, op, err));
    if (state->group != NULL)
        return queue_reduce_scatter(comm, send, recv, n_elems, dtype, op, 1.0f, err);
    return comm->size == 1 ? move(comm, send, recv, n_elems * fsdp_dtype_size(dtype))
                           : staging_reduce_scatter(&state->staging, stream_of(comm), send, recv, n_elems,
                                                    dtype, op, err);
}

/* Of a group that has collectives of the device, which multiply on their way. */
static enum fsdp_status device_reduce_scatter_scaled(struct fsdp_comm *comm, const void *send, void *recv,
                                                     size_t n_elems, enum fsdp_dtype dtype, float factor,
                                                     struct fsdp_err *err)
{
    if (!is_device(comm, recv))
        return fsdp_fail(err, FSDP_ERR_ARG, "a scaled sum of host memory");
    return queue_reduce_scatter(comm, send, recv, n_elems, dtype, COMM_SCALED_SUM, factor, err);
}

static enum fsdp_status device_all_reduce(struct fsdp_comm *comm, void *buffer, size_t n_elems,
                                          enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err)
{
    struct device_comm *state = state_of(comm);
    enum fsdp_status status;

    if (!is_device(comm, buffer))
        return of_host(comm, host_of(comm)->ops->all_reduce(state->host, buffer, n_elems, dtype, op, err));
    if (state->group == NULL)
        return comm->size == 1
                   ? FSDP_OK
                   : staging_all_reduce(&state->staging, stream_of(comm), buffer, n_elems, dtype, op, err);
    status = compare(comm, COMM_ALL_REDUCE, n_elems * fsdp_dtype_size(dtype), dtype, op, -1, err);
    if (status == FSDP_OK)
        status = prepare(comm, buffer, buffer, err);
    if (status == FSDP_OK)
        status = queued(comm, state->comms->collectives->all_reduce(state->group, buffer, n_elems, dtype, op,
                                                                    stream_of(comm), err));
    return status;
}

static enum fsdp_status device_broadcast(struct fsdp_comm *comm, void *buffer, size_t size_bytes, int root,
                                         struct fsdp_err *err)
{
    struct device_comm *state = state_of(comm);
    enum fsdp_status status;

    if (!is_device(comm, buffer))
        return of_host(comm, host_of(comm)->ops->broadcast(state->host, buffer, size_bytes, root, err));
    if (state->group == NULL)
        return comm->size == 1
                   ? FSDP_OK
                   : staging_broadcast(&state->staging, stream_of(comm), buffer, size_bytes, root, err);
    status = compare(comm, COMM_BROADCAST, size_bytes, FSDP_U8, FSDP_SUM, root, err);
    if (status == FSDP_OK)
        status = prepare(comm, buffer, buffer, err);
    if (status == FSDP_OK)
        status = queued(comm, state->comms->collectives->broadcast(state->group, buffer, size_bytes, root,
                                                                   stream_of(comm), err));
    return status;
}

static enum fsdp_status device_barrier(struct fsdp_comm *comm, struct fsdp_err *err)
{
    return of_host(comm, host_of(comm)->ops->barrier(state_of(comm)->host, err));
}

/* --- opening --------------------------------------------------------------------------------------------- */

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
    .name = "device", .close = device_comm_close, .all_gather = device_all_gather,                           \
    .reduce_scatter = device_reduce_scatter, .all_reduce = device_all_reduce, .broadcast = device_broadcast, \
    .barrier = device_barrier, .split = device_split, .fail = device_fail, .wraps = true,                    \
    .hear = device_hear

static const struct comm_ops staged_ops = { SLOTS };
/* With collectives of the device, which can do what staging leaves to kernels before. */
static const struct comm_ops queued_ops = { SLOTS, .reduce_scatter_scaled = device_reduce_scatter_scaled };

/* Rank 0 makes the group's identity and puts it where the others get it: the store that the agent keeps. */
static enum fsdp_status share_id(const struct device_comms *comms, const struct fsdp_comm *host,
                                 struct device_group_config *config, struct fsdp_err *err)
{
    char key[COMM_NAME_BYTES + 16];
    size_t size_bytes = sizeof config->id;
    enum fsdp_status status = FSDP_OK;

    snprintf(key, sizeof key, "%s/%s", comms->collectives->name, host->name);
    if (host->rank == 0) {
        status = comms->collectives->make_id(comms->device, config->id, err);
        return status == FSDP_OK && host->size > 1
                   ? link_put(comms->link, key, config->id, sizeof config->id, -1, err)
                   : status;
    }
    status = link_get(comms->link, key, config->id, &size_bytes, NULL, err);
    if (status == FSDP_OK && size_bytes != sizeof config->id)
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "an identity of %zu bytes, not %zu", size_bytes,
                           sizeof config->id);
    return status;
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

/* Fill in `comm`, around `host`, which becomes its own also when this fails. */
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
    enum fsdp_status status = comm_split(&host, state_of(comm)->host, part->name, ranks, part->size, err);

    return status == FSDP_OK ? dress(part, host, state_of(comm)->comms, err) : status;
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

/* --- what goes wrong meanwhile --------------------------------------------------------------------------- */

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
