#include "shard_runtime/comm/reduce.h"
#include "shard_runtime/comm/tcp_mesh_impl.h"
#include "shard_runtime/core/require.h"

/* Up to this size every node sends everything to all and sums it all: one exchange in place of two. */
enum { SMALL_BYTES = 16 << 10 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void plan_out(struct tcp_mesh *mesh, int node, const void *data, size_t bytes)
{
    mesh->conns[node].out = data;
    mesh->conns[node].out_left = node == mesh->self ? 0 : bytes;
}

static void plan_in(struct tcp_mesh *mesh, int node, void *data, size_t bytes)
{
    mesh->conns[node].in = data;
    mesh->conns[node].in_left = node == mesh->self ? 0 : bytes;
}

enum fsdp_status tcp_gather(struct tcp_mesh *mesh, const void *send, void *recv, size_t stride, size_t bytes,
                            struct fsdp_err *err)
{
    for (int i = 0; i < mesh->n; i++) {
        plan_out(mesh, i, send, bytes);
        plan_in(mesh, i, (char *)recv + (size_t)i * stride, bytes);
    }
    return tcp_exchange(mesh, true, err);
}

/*
 * Receives (n_elems) from every other node, chunk by chunk, and sums each chunk with `own` into `recv`, in
 * node order. The caller has planned what this node sends; the exchanges here send it on the side.
 */
static enum fsdp_status reduce_incoming(struct tcp_mesh *mesh, const char *own, char *recv,
                                        enum fsdp_dtype out_dtype, size_t n_elems, enum fsdp_dtype dtype,
                                        enum fsdp_reduce_op op, int divisor, struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype), per_chunk = TCP_CHUNK_BYTES / size;

    for (size_t at = 0; at < n_elems; at += per_chunk) {
        const size_t n = least(n_elems - at, per_chunk);

        for (int i = 0; i < mesh->n; i++) {
            mesh->sources[i] = mesh->staging + (size_t)i * TCP_CHUNK_BYTES;
            plan_in(mesh, i, mesh->staging + (size_t)i * TCP_CHUNK_BYTES, n * size);
        }
        mesh->sources[mesh->self] = own + at * size;
        OK_OR_RETURN(tcp_exchange(mesh, false, err));
        reduce_sources(recv + at * fsdp_dtype_size(out_dtype), out_dtype, mesh->sources, dtype, mesh->n, n,
                       op, divisor);
    }
    return FSDP_OK;
}

enum fsdp_status tcp_reduce_rows(struct tcp_mesh *mesh, const void *send, size_t stride, void *recv,
                                 enum fsdp_dtype out_dtype, size_t n_elems, enum fsdp_dtype dtype,
                                 enum fsdp_reduce_op op, int divisor, struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype);
    const char *rows = send;

    for (int i = 0; i < mesh->n; i++)
        plan_out(mesh, i, rows + (size_t)i * stride * size, n_elems * size);
    OK_OR_RETURN(reduce_incoming(mesh, rows + (size_t)mesh->self * stride * size, recv, out_dtype, n_elems,
                                 dtype, op, divisor, err));
    return tcp_exchange(mesh, true, err);
}

/* Every node sends all of its buffer to all others and sums everything: the same order, so the same bits. */
static enum fsdp_status reduce_small(struct tcp_mesh *mesh, void *buffer, size_t n_elems,
                                     enum fsdp_dtype dtype, enum fsdp_reduce_op op, int divisor,
                                     struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);

    for (int i = 0; i < mesh->n; i++) {
        mesh->sources[i] = mesh->staging + (size_t)i * TCP_CHUNK_BYTES;
        plan_out(mesh, i, buffer, bytes);
        plan_in(mesh, i, mesh->staging + (size_t)i * TCP_CHUNK_BYTES, bytes);
    }
    mesh->sources[mesh->self] = buffer;
    OK_OR_RETURN(tcp_exchange(mesh, true, err)); /* the sum overwrites what is sent */
    reduce_sources(buffer, dtype, mesh->sources, dtype, mesh->n, n_elems, op, divisor);
    return FSDP_OK;
}

/*
 * Two exchanges:
 *   1. Every node sends each other node that node's part of the buffer, and sums its own part.
 *   2. Every node sends its summed part to all others.
 * Small buffers take one exchange (reduce_small()).
 */
enum fsdp_status tcp_reduce_all(struct tcp_mesh *mesh, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                enum fsdp_reduce_op op, int divisor, struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype), part = (n_elems + (size_t)mesh->n - 1) / (size_t)mesh->n;
    const size_t own_at = least((size_t)mesh->self * part, n_elems), own_n = least(part, n_elems - own_at);
    char *data = buffer, *own = data + own_at * size;

    if (n_elems * size <= SMALL_BYTES)
        return reduce_small(mesh, buffer, n_elems, dtype, op, divisor, err);
    for (int i = 0; i < mesh->n; i++) {
        const size_t at = least((size_t)i * part, n_elems);

        plan_out(mesh, i, data + at * size, least(part, n_elems - at) * size);
    }
    OK_OR_RETURN(reduce_incoming(mesh, own, own, dtype, own_n, dtype, op, divisor, err));
    /* The exchange flushes: then the parts for the other ranks have been sent, and may be overwritten. */
    OK_OR_RETURN(tcp_exchange(mesh, true, err));
    for (int i = 0; i < mesh->n; i++) {
        const size_t at = least((size_t)i * part, n_elems);

        plan_out(mesh, i, own, own_n * size);
        plan_in(mesh, i, data + at * size, least(part, n_elems - at) * size);
    }
    return tcp_exchange(mesh, true, err);
}

enum fsdp_status tcp_spread(struct tcp_mesh *mesh, void *buffer, size_t bytes, int root, struct fsdp_err *err)
{
    for (int i = 0; i < mesh->n; i++) {
        plan_out(mesh, i, buffer, mesh->self == root ? bytes : 0);
        plan_in(mesh, i, buffer, i == root ? bytes : 0);
    }
    return tcp_exchange(mesh, true, err);
}
