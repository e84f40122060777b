/* Collectives of a unit's own, counted, that do what those of the library do. */
#ifndef TEST_ENGINE_COUNTED_COMM_H
#define TEST_ENGINE_COUNTED_COMM_H

#include <fsdp/fsdp.h>

struct counts {
    int gathers, reduces;
};

static enum fsdp_status count_gather(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                     enum fsdp_dtype dtype, struct device_stream *stream, void *user,
                                     struct fsdp_err *err)
{
    ((struct counts *)user)->gathers++;
    return fsdp_all_gather(group, send, recv, n_elems, dtype, stream, err);
}

static enum fsdp_status count_reduce(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                     enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                     struct device_stream *stream, void *user, struct fsdp_err *err)
{
    ((struct counts *)user)->reduces++;
    return fsdp_reduce_scatter(group, send, recv, n_elems, dtype, op, stream, err);
}

#endif
