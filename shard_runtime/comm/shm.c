/*
 * The back end for ranks that are all on one host.
 */
#include "shard_runtime/comm/shm.h"

#include <stdlib.h>

struct state {
    struct watch *watch;
    struct shm *shm;
};

static void shm_backend_close(struct fsdp_comm *comm)
{
    struct state *state = comm->state;

    if (state == NULL)
        return;
    shm_destroy(state->shm);
    watch_destroy(state->watch);
    free(state);
    comm->state = NULL;
}

static enum fsdp_status shm_backend_open(struct fsdp_comm *comm, const struct comm_config *config,
                                         struct fsdp_err *err)
{
    struct state *state = calloc(1, sizeof *state);
    enum fsdp_status status;

    if (state == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "the group's state");
    comm->state = state;
    status = watch_create(&state->watch, config->link, config->name, 0, comm->size, comm->rank, err);
    if (status == FSDP_OK) {
        const struct shm_config shm = { .name = config->name,
                                        .link = config->link,
                                        .watch = state->watch,
                                        .node = (int)link_hello(config->link)->node_rank,
                                        .n = comm->size,
                                        .self = comm->rank,
                                        .chunk_bytes = config->chunk_bytes };

        status = shm_create(&state->shm, &shm, err);
    }
    if (status != FSDP_OK)
        shm_backend_close(comm);
    return status;
}

static struct shm *enter(struct fsdp_comm *comm, struct comm_call call)
{
    struct state *state = comm->state;

    shm_enter(state->shm, &call);
    return state->shm;
}

static enum fsdp_status leave(struct shm *shm, enum fsdp_status status, struct fsdp_err *err)
{
    return status == FSDP_OK ? shm_leave(shm, err) : status;
}

static enum fsdp_status shm_backend_all_gather(struct fsdp_comm *comm, const void *send, void *recv,
                                               size_t n_elems, enum fsdp_dtype dtype, struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    struct shm *shm = enter(comm, comm_call_of(comm, COMM_ALL_GATHER, bytes, dtype, 0, 0));

    return leave(shm, shm_gather(shm, send, recv, bytes, err), err);
}

static enum fsdp_status shm_backend_reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv,
                                                   size_t n_elems, enum fsdp_dtype dtype,
                                                   enum fsdp_reduce_op op, struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    struct shm *shm = enter(comm, comm_call_of(comm, COMM_REDUCE_SCATTER, bytes, dtype, op, 0));

    return leave(shm, shm_reduce_rows(shm, send, n_elems, recv, dtype, n_elems, dtype, op, comm->size, err),
                 err);
}

static enum fsdp_status shm_backend_all_reduce(struct fsdp_comm *comm, void *buffer, size_t n_elems,
                                               enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                               struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    struct shm *shm = enter(comm, comm_call_of(comm, COMM_ALL_REDUCE, bytes, dtype, op, 0));

    return leave(shm, shm_reduce_all(shm, buffer, n_elems, dtype, op, comm->size, err), err);
}

static enum fsdp_status shm_backend_broadcast(struct fsdp_comm *comm, void *buffer, size_t size_bytes,
                                              int root, struct fsdp_err *err)
{
    struct shm *shm = enter(comm, comm_call_of(comm, COMM_BROADCAST, size_bytes, FSDP_U8, 0, root));

    return leave(shm, shm_spread(shm, buffer, size_bytes, root, err), err);
}

static enum fsdp_status shm_backend_barrier(struct fsdp_comm *comm, struct fsdp_err *err)
{
    struct shm *shm = enter(comm, comm_call_of(comm, COMM_BARRIER, 0, FSDP_U8, 0, 0));

    return shm_leave(shm, err);
}

static void shm_backend_fail(struct fsdp_comm *comm, enum fsdp_status status, const char *words)
{
    struct state *state = comm->state;

    shm_fail(state->shm, status, words);
}

static bool shm_backend_hear(struct fsdp_comm *comm, struct fsdp_err *err)
{
    const struct state *state = comm->state;

    return shm_hear(state->shm, err);
}

const struct comm_ops comm_shm_ops = {
    .name = "shm",
    .open = shm_backend_open,
    .close = shm_backend_close,
    .all_gather = shm_backend_all_gather,
    .reduce_scatter = shm_backend_reduce_scatter,
    .all_reduce = shm_backend_all_reduce,
    .broadcast = shm_backend_broadcast,
    .barrier = shm_backend_barrier,
    .fail = shm_backend_fail,
    .hear = shm_backend_hear,
};
