/*
 * The back end for one rank a node.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/tcp_mesh.h"

struct state {
    struct watch *watch;
    struct tcp_mesh *mesh;
};

static void tcp_close(struct fsdp_comm *comm)
{
    struct state *state = comm->state;

    if (state == NULL)
        return;
    tcp_mesh_destroy(state->mesh);
    watch_destroy(state->watch);
    free(state);
    comm->state = NULL;
}

static enum fsdp_status tcp_open(struct fsdp_comm *comm, const struct comm_config *config,
                                 struct fsdp_err *err)
{
    struct state *state = calloc(1, sizeof *state);
    enum fsdp_status status;

    if (state == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "the group's state");
    comm->state = state;
    status = watch_create(&state->watch, config->link, config->name, comm->rank, 1, comm->rank, err);
    if (status == FSDP_OK) {
        const struct tcp_mesh_config mesh = { .name = config->name,
                                              .link = config->link,
                                              .watch = state->watch,
                                              .n = comm->size,
                                              .self = comm->rank,
                                              .rails = 1 };

        status = tcp_mesh_create(&state->mesh, &mesh, err);
    }
    if (status != FSDP_OK)
        tcp_close(comm);
    return status;
}

static struct tcp_mesh *enter(struct fsdp_comm *comm, struct comm_call call)
{
    struct state *state = comm->state;

    tcp_enter(state->mesh, &call);
    return state->mesh;
}

static enum fsdp_status tcp_all_gather(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                       enum fsdp_dtype dtype, struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    struct tcp_mesh *mesh = enter(comm, comm_call_of(comm, COMM_ALL_GATHER, bytes, dtype, 0, 0));
    char *own = (char *)recv + (size_t)comm->rank * bytes;

    if (bytes > 0 && own != send)
        memcpy(own, send, bytes);
    return tcp_gather(mesh, send, recv, bytes, bytes, err);
}

static enum fsdp_status tcp_reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv,
                                           size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                           struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    struct tcp_mesh *mesh = enter(comm, comm_call_of(comm, COMM_REDUCE_SCATTER, bytes, dtype, op, 0));

    return tcp_reduce_rows(mesh, send, n_elems, recv, dtype, n_elems, dtype, op, comm->size, err);
}

static enum fsdp_status tcp_all_reduce(struct fsdp_comm *comm, void *buffer, size_t n_elems,
                                       enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    struct tcp_mesh *mesh = enter(comm, comm_call_of(comm, COMM_ALL_REDUCE, bytes, dtype, op, 0));

    return tcp_reduce_all(mesh, buffer, n_elems, dtype, op, comm->size, err);
}

static enum fsdp_status tcp_broadcast(struct fsdp_comm *comm, void *buffer, size_t size_bytes, int root,
                                      struct fsdp_err *err)
{
    struct tcp_mesh *mesh = enter(comm, comm_call_of(comm, COMM_BROADCAST, size_bytes, FSDP_U8, 0, root));

    return tcp_spread(mesh, buffer, size_bytes, root, err);
}

static enum fsdp_status tcp_barrier(struct fsdp_comm *comm, struct fsdp_err *err)
{
    return tcp_leave(enter(comm, comm_call_of(comm, COMM_BARRIER, 0, FSDP_U8, 0, 0)), err);
}

static void tcp_give_up(struct fsdp_comm *comm, enum fsdp_status status, const char *words)
{
    struct state *state = comm->state;

    (void)status; /* for the others it is a peer that left */
    tcp_say(state->mesh, words);
}

static bool tcp_hear_peer(struct fsdp_comm *comm, struct fsdp_err *err)
{
    struct state *state = comm->state;

    return tcp_hear(state->mesh, err);
}

const struct comm_ops comm_tcp_ops = {
    .name = "tcp",
    .open = tcp_open,
    .close = tcp_close,
    .all_gather = tcp_all_gather,
    .reduce_scatter = tcp_reduce_scatter,
    .all_reduce = tcp_all_reduce,
    .broadcast = tcp_broadcast,
    .barrier = tcp_barrier,
    .fail = tcp_give_up,
    .hear = tcp_hear_peer,
};
