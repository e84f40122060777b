/*
 * A group of one: sums of one term, blocks that are the whole. The mean over one rank is the value itself.
 */
#include <string.h>

#include "shard_runtime/comm/comm_impl.h"

static enum fsdp_status self_open(struct fsdp_comm *comm, const struct comm_config *config,
                                  struct fsdp_err *err)
{
    (void)comm, (void)config, (void)err;
    return FSDP_OK;
}

static void self_close(struct fsdp_comm *comm)
{
    (void)comm;
}

static void copy_block(const void *send, void *recv, size_t n_elems, enum fsdp_dtype dtype)
{
    if (n_elems > 0 && send != recv)
        memcpy(recv, send, n_elems * fsdp_dtype_size(dtype));
}

static enum fsdp_status self_all_gather(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                        enum fsdp_dtype dtype, struct fsdp_err *err)
{
    (void)comm, (void)err;
    copy_block(send, recv, n_elems, dtype);
    return FSDP_OK;
}

static enum fsdp_status self_reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv,
                                            size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                            struct fsdp_err *err)
{
    (void)comm, (void)op, (void)err;
    copy_block(send, recv, n_elems, dtype);
    return FSDP_OK;
}

static enum fsdp_status self_all_reduce(struct fsdp_comm *comm, void *buffer, size_t n_elems,
                                        enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err)
{
    (void)comm, (void)buffer, (void)n_elems, (void)dtype, (void)op, (void)err;
    return FSDP_OK;
}

static enum fsdp_status self_broadcast(struct fsdp_comm *comm, void *buffer, size_t size_bytes, int root,
                                       struct fsdp_err *err)
{
    (void)comm, (void)buffer, (void)size_bytes, (void)root, (void)err;
    return FSDP_OK;
}

static enum fsdp_status self_barrier(struct fsdp_comm *comm, struct fsdp_err *err)
{
    (void)comm, (void)err;
    return FSDP_OK;
}

const struct comm_ops comm_self_ops = {
    .name = "self",
    .open = self_open,
    .close = self_close,
    .all_gather = self_all_gather,
    .reduce_scatter = self_reduce_scatter,
    .all_reduce = self_all_reduce,
    .broadcast = self_broadcast,
    .barrier = self_barrier,
};
