/*
 * The back end for several ranks on each of several nodes: shared memory inside a node, and one rail of TCP
 * connections for each local rank, so that every rank moves its share. Sums run inside each node in rank order, then
 * over the nodes in order; bfloat16 crosses the rails as float32 and is rounded once, at the end.
 *
 * Every rank takes part in every collective on its rail, if only to compare calls: thus ranks of two nodes that are
 * at odds find out, whichever rail moves the data.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/shm.h"
#include "shard_runtime/comm/tcp_mesh.h"

/* Up to this size every rail sums everything: cheaper than to share out and to collect. */
enum { SMALL_BYTES = 8192 };

struct state {
    struct watch *watch;
    struct shm *shm;
    struct tcp_mesh *mesh;
    int N, L;        /* nodes, ranks on each */
    int node, local; /* this one's */
    float *partial;  /* JOINED_PARTIAL_BYTES */
};

static void joined_close(struct fsdp_comm *comm)
{
    struct state *state = comm->state;

    if (state == NULL)
        return;
    tcp_mesh_destroy(state->mesh);
    shm_destroy(state->shm);
    watch_destroy(state->watch);
    free(state->partial);
    free(state);
    comm->state = NULL;
}

static enum fsdp_status joined_open(struct fsdp_comm *comm, const struct comm_config *config,
                                    struct fsdp_err *err)
{
    struct state *state = calloc(1, sizeof *state);
    struct comm_places places;
    enum fsdp_status status;

    if (state == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "the group's state");
    comm->state = state;
    status = comm_place(&places, config, err);
    if (status != FSDP_OK)
        goto done;
    state->N = places.n_nodes;
    state->L = places.per_node;
    state->node = comm->rank / state->L;
    state->local = comm->rank % state->L;
    state->partial = calloc(1, JOINED_PARTIAL_BYTES);
    if (state->partial == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "the group's partial sums");
        goto done;
    }
    status = watch_create(&state->watch, config->link, config->name, state->node * state->L, state->L,
                          comm->rank, err);
    if (status == FSDP_OK) {
        const struct shm_config shm = { .name = config->name,
                                        .link = config->link,
                                        .watch = state->watch,
                                        .node = state->node,
                                        .first = state->node * state->L,
                                        .n = state->L,
                                        .self = state->local,
                                        .chunk_bytes = config->chunk_bytes };

        status = shm_create(&state->shm, &shm, err);
    }
    if (status == FSDP_OK) {
        const struct tcp_mesh_config mesh = { .name = config->name,
                                              .link = config->link,
                                              .watch = state->watch,
                                              .n = state->N,
                                              .self = state->node,
                                              .rail = state->local,
                                              .rails = state->L };

        status = tcp_mesh_create(&state->mesh, &mesh, err);
    }
done:
    if (status != FSDP_OK)
        joined_close(comm);
    return status;
}

static struct state *enter(struct fsdp_comm *comm, struct comm_call call)
{
    struct state *state = comm->state;

    shm_enter(state->shm, &call);
    tcp_enter(state->mesh, &call);
    return state;
}

/*
 * The end of every collective, good or bad. Whatever step failed, the ranks of this node and the nodes of this rail
 * must not wait for this one. The last step is a meeting: a rank whose rail was quick might end its process, and that
 * is a failure to the ranks of its node whose rails still wait.
 */
static enum fsdp_status leave(struct state *state, enum fsdp_status status, struct fsdp_err *err)
{
    if (status == FSDP_OK)
        status = tcp_leave(state->mesh, err);
    if (status == FSDP_OK)
        status = shm_meet(state->shm, err);
    if (status == FSDP_ERR_PEER)
        (void)shm_hear(state->shm, err); /* the node may know more than the rail */
    if (status != FSDP_OK) {
        shm_fail(state->shm, status, err->message);
        tcp_fail(state->mesh);
    }
    return status;
}

/* First the rail brings this local rank's block of every node, then the node's ranks share what each has brought. */
static enum fsdp_status gather(struct state *state, const void *send, char *recv, size_t bytes,
                               struct fsdp_err *err)
{
    const size_t node_bytes = (size_t)state->L * bytes, own = (size_t)state->local * bytes;
    enum fsdp_status status;

    if (bytes > 0 && send != recv + (size_t)state->node * node_bytes + own)
        memcpy(recv + (size_t)state->node * node_bytes + own, send, bytes);
    status = tcp_gather(state->mesh, send, recv + own, node_bytes, bytes, err);
    for (int b = 0; b < state->N && status == FSDP_OK; b++)
        status = shm_gather(state->shm, recv + (size_t)b * node_bytes + own, recv + (size_t)b * node_bytes,
                            bytes, err);
    return status;
}

static enum fsdp_status joined_all_gather(struct fsdp_comm *comm, const void *send, void *recv,
                                          size_t n_elems, enum fsdp_dtype dtype, struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    struct state *state = enter(comm, comm_call_of(comm, COMM_ALL_GATHER, bytes, dtype, 0, 0));

    return leave(state, gather(state, send, recv, bytes, err), err);
}

/* Piece by piece: this node's sums for every node, (N, piece) in `partial`; then over the rail, in node order. */
static enum fsdp_status reduce_scatter(struct state *state, const char *send, char *recv, size_t n_elems,
                                       enum fsdp_dtype dtype, enum fsdp_reduce_op op, int divisor,
                                       struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype), node_bytes = (size_t)state->L * n_elems * size;
    const size_t most = JOINED_PARTIAL_BYTES / sizeof(float) / (size_t)state->N;
    const size_t piece = most > 16 ? most / 16 * 16 : 1;
    const enum fsdp_reduce_op part_op = op == FSDP_MAX ? FSDP_MAX : FSDP_SUM;
    enum fsdp_status status = FSDP_OK;

    for (size_t at = 0; at < n_elems && status == FSDP_OK; at += piece) {
        const size_t n = n_elems - at < piece ? n_elems - at : piece;

        for (int b = 0; b < state->N && status == FSDP_OK; b++)
            status = shm_reduce_rows(state->shm, send + (size_t)b * node_bytes + at * size, n_elems,
                                     state->partial + (size_t)b * piece, FSDP_F32, n, dtype, part_op, 1, err);
        if (status == FSDP_OK)
            status = tcp_reduce_rows(state->mesh, state->partial, piece, recv + at * size, dtype, n, FSDP_F32,
                                     op, divisor, err);
    }
    return status;
}

static enum fsdp_status joined_reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv,
                                              size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                              struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    struct state *state = enter(comm, comm_call_of(comm, COMM_REDUCE_SCATTER, bytes, dtype, op, 0));

    return leave(state, reduce_scatter(state, send, recv, n_elems, dtype, op, comm->size, err), err);
}

/* The node's sum on each of its ranks; each rail sums one part of it over the nodes; the ranks share the parts. */
static enum fsdp_status all_reduce(struct state *state, char *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                   enum fsdp_reduce_op op, int divisor, struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype);
    const bool small = n_elems * size <= SMALL_BYTES;
    const size_t part = small ? n_elems : (n_elems + (size_t)state->L - 1) / (size_t)state->L;
    const enum fsdp_reduce_op part_op = op == FSDP_MAX ? FSDP_MAX : FSDP_SUM;
    size_t at = small ? 0 : (size_t)state->local * part;
    enum fsdp_status status;

    if (n_elems == 0)
        return FSDP_OK;
    at = at < n_elems ? at : n_elems;
    status = shm_reduce_all(state->shm, buffer, n_elems, dtype, part_op, 1, err);
    if (status == FSDP_OK)
        status = tcp_reduce_all(state->mesh, buffer + at * size, part < n_elems - at ? part : n_elems - at,
                                dtype, op, divisor, err);
    for (int l = 0; l < state->L && status == FSDP_OK && !small; l++) {
        at = (size_t)l * part;
        at = at < n_elems ? at : n_elems;
        status = shm_spread(state->shm, buffer + at * size,
                            (part < n_elems - at ? part : n_elems - at) * size, l, err);
    }
    return status;
}

static enum fsdp_status joined_all_reduce(struct fsdp_comm *comm, void *buffer, size_t n_elems,
                                          enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    struct state *state = enter(comm, comm_call_of(comm, COMM_ALL_REDUCE, bytes, dtype, op, 0));

    return leave(state, all_reduce(state, buffer, n_elems, dtype, op, comm->size, err), err);
}

static enum fsdp_status joined_broadcast(struct fsdp_comm *comm, void *buffer, size_t size_bytes, int root,
                                         struct fsdp_err *err)
{
    struct state *state = enter(comm, comm_call_of(comm, COMM_BROADCAST, size_bytes, FSDP_U8, 0, root));
    const int rail = root % state->L;
    enum fsdp_status status = FSDP_OK;

    if (state->local == rail)
        status = tcp_spread(state->mesh, buffer, size_bytes, root / state->L, err);
    if (status == FSDP_OK)
        status = shm_spread(state->shm, buffer, size_bytes, rail, err);
    return leave(state, status, err);
}

/* Each rail meets; then the node's ranks, which vouch for their rails. */
static enum fsdp_status joined_barrier(struct fsdp_comm *comm, struct fsdp_err *err)
{
    struct state *state = enter(comm, comm_call_of(comm, COMM_BARRIER, 0, FSDP_U8, 0, 0));

    return leave(state, FSDP_OK, err);
}

static void joined_fail(struct fsdp_comm *comm, enum fsdp_status status, const char *words)
{
    struct state *state = comm->state;

    shm_fail(state->shm, status, words);
    tcp_say(state->mesh, words);
}

static bool joined_hear(struct fsdp_comm *comm, struct fsdp_err *err)
{
    struct state *state = comm->state;

    return shm_hear(state->shm, err) || tcp_hear(state->mesh, err);
}

const struct comm_ops comm_joined_ops = {
    .name = "joined",
    .open = joined_open,
    .close = joined_close,
    .all_gather = joined_all_gather,
    .reduce_scatter = joined_reduce_scatter,
    .all_reduce = joined_all_reduce,
    .broadcast = joined_broadcast,
    .barrier = joined_barrier,
    .fail = joined_fail,
    .hear = joined_hear,
};
