/*
 * The back end for tensors in host memory. It has two sides, and each may be absent:
 *   local   shared memory between the ranks of one node (shm.h); absent where a node has one member
 *   remote  TCP between nodes (tcp_mesh.h); absent where all members are on one node
 * A group of one rank has neither: its collectives copy.
 *
 * With both sides every local rank has TCP connections of its own, a rail, so that every rank moves its
 * share. Sums run inside each node in rank order, then over the nodes in order. bfloat16 crosses the rails as
 * float32 and is rounded once, at the end.
 *
 * Every rank takes part in every collective on its rail, even if only to compare calls. So ranks of two nodes
 * that call different collectives find out, whichever rail moves the data.
 */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/comm/shm.h"
#include "shard_runtime/comm/tcp_mesh.h"
#include "shard_runtime/core/require.h"

/* Up to this size every rail sums everything: that is cheaper than to share out and to collect. */
enum { SMALL_BYTES = 8192 };

/* With both sides: the node's partial sums of one piece, for all nodes together. */
enum { PARTIAL_BYTES = 1 << 20 };

struct cpu {
    struct watch *watch;   /* NULL in a group of one */
    struct shm *shm;       /* the local side; NULL where it is absent */
    struct tcp_mesh *mesh; /* the remote side; NULL where it is absent */
    int N, L;              /* nodes, members on each */
    int node, local;       /* this rank's place: 0 ... N - 1, 0 ... L - 1 */
    float *partial;        /* PARTIAL_BYTES, if both sides are there */
};

size_t comm_staging_bytes(int n_nodes, int per_node)
{
    if (n_nodes == 1)
        return 0;
    return tcp_staging_bytes(n_nodes) + (per_node > 1 ? PARTIAL_BYTES : 0);
}

size_t comm_shared_bytes(int per_node)
{
    return per_node > 1 ? shm_segment_bytes(per_node) : 0;
}

static void cpu_close(struct fsdp_comm *comm)
{
    struct cpu *cpu = comm->state;

    tcp_mesh_destroy(cpu->mesh);
    shm_destroy(cpu->shm);
    watch_destroy(cpu->watch);
    free(cpu->partial);
    free(cpu);
}

static enum fsdp_status open_sides(struct cpu *cpu, const struct comm_config *config, struct fsdp_err *err)
{
    struct shm_config shm = { .name = config->name,
                              .link = config->link,
                              .first = cpu->node * cpu->L,
                              .n = cpu->L,
                              .self = cpu->local,
                              .chunk_bytes = config->chunk_bytes };
    struct tcp_mesh_config mesh = { .name = config->name,
                                    .link = config->link,
                                    .n = cpu->N,
                                    .self = cpu->node,
                                    .rail = cpu->local,
                                    .rails = cpu->L };

    if (config->size > 1)
        OK_OR_RETURN(
            watch_create(&cpu->watch, config->link, config->name, shm.first, cpu->L, config->rank, err));
    shm.watch = mesh.watch = cpu->watch;
    if (cpu->L > 1)
        OK_OR_RETURN(shm_create(&cpu->shm, &shm, err));
    if (cpu->N > 1)
        OK_OR_RETURN(tcp_mesh_create(&cpu->mesh, &mesh, err));
    if (cpu->mesh != NULL && cpu->shm != NULL) {
        cpu->partial = calloc(1, PARTIAL_BYTES);
        if (cpu->partial == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "the group's partial sums");
    }
    return FSDP_OK;
}

/*
 * Ends every collective, whether it succeeded or not. `status` is the result of its steps.
 *
 * With both sides the last step is a meeting of the node. Without it:
 *   1. Rank A's rail is quick. A returns and ends its process.
 *   2. Rank B of the same node still waits for its own rail, and sees that A's process has ended.
 *   3. B reports a failure, although the collective succeeds.
 *
 * After a failure neither the ranks of this node nor the nodes of this rail may wait for this rank.
 */
static enum fsdp_status leave(struct cpu *cpu, enum fsdp_status status, struct fsdp_err *err)
{
    if (status == FSDP_OK && cpu->mesh != NULL)
        status = tcp_leave(cpu->mesh, err);
    if (status == FSDP_OK && cpu->shm != NULL)
        status = cpu->mesh != NULL ? shm_meet(cpu->shm, err) : shm_leave(cpu->shm, err);
    if (status == FSDP_ERR_PEER && cpu->mesh != NULL && cpu->shm != NULL)
        (void)shm_hear(cpu->shm, err); /* the node may have heard of a failure that this rail has not */
    if (status != FSDP_OK && cpu->shm != NULL)
        shm_fail(cpu->shm, status, err->message);
    if (status != FSDP_OK && cpu->mesh != NULL)
        tcp_fail(cpu->mesh);
    return status;
}

static void copy_block(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, bytes);
}

/*
 * First the rail brings the blocks that ranks of other nodes on this rail send. Then, node by node, the local
 * ranks share what each of them got. If one of the two sides is absent, the other one fills in this rank's
 * own block.
 */
static enum fsdp_status gather(struct cpu *cpu, const void *send, char *recv, size_t bytes,
                               struct fsdp_err *err)
{
    const size_t node_bytes = (size_t)cpu->L * bytes;
    char *rail = recv + (size_t)cpu->local * bytes; /* block b of the rail is at b * node_bytes */

    if (cpu->mesh != NULL)
        OK_OR_RETURN(tcp_gather(cpu->mesh, send, rail, node_bytes, bytes, err));
    if (cpu->shm == NULL)
        copy_block(rail + (size_t)cpu->node * node_bytes, send, bytes);
    for (int b = 0; b < cpu->N && cpu->shm != NULL; b++) {
        const size_t at = (size_t)b * node_bytes;

        OK_OR_RETURN(shm_gather(cpu->shm, b == cpu->node ? send : rail + at, recv + at, bytes, err));
    }
    return FSDP_OK;
}

/*
 * Returns the operation inside the node for a reduction that the rails complete. For a mean, the node sums;
 * the rails divide at the end.
 */
static enum fsdp_reduce_op node_op(const struct cpu *cpu, enum fsdp_reduce_op op)
{
    return cpu->mesh != NULL && op == FSDP_MEAN ? FSDP_SUM : op;
}

/*
 * With both sides, piece by piece: first computes this node's sums for every node, (N, piece) in `partial`,
 * and then the sums of these over the rail.
 */
static enum fsdp_status reduce_pieces(struct cpu *cpu, const char *send, char *recv, size_t n_elems,
                                      enum fsdp_dtype dtype, enum fsdp_reduce_op op, int divisor,
                                      struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype), node_bytes = (size_t)cpu->L * n_elems * size;
    const size_t most = PARTIAL_BYTES / sizeof(float) / (size_t)cpu->N;
    const size_t piece = most > 16 ? most / 16 * 16 : 1;

    for (size_t at = 0; at < n_elems; at += piece) {
        const size_t n = n_elems - at < piece ? n_elems - at : piece;

        for (int b = 0; b < cpu->N; b++)
            OK_OR_RETURN(shm_reduce_rows(cpu->shm, send + (size_t)b * node_bytes + at * size, n_elems,
                                         cpu->partial + (size_t)b * piece, FSDP_F32, n, dtype,
                                         node_op(cpu, op), divisor, err));
        OK_OR_RETURN(tcp_reduce_rows(cpu->mesh, cpu->partial, piece, recv + at * size, dtype, n, FSDP_F32, op,
                                     divisor, err));
    }
    return FSDP_OK;
}

static enum fsdp_status reduce_scatter(struct cpu *cpu, const void *send, void *recv, size_t n_elems,
                                       enum fsdp_dtype dtype, enum fsdp_reduce_op op, int divisor,
                                       struct fsdp_err *err)
{
    if (cpu->mesh != NULL && cpu->shm != NULL)
        return reduce_pieces(cpu, send, recv, n_elems, dtype, op, divisor, err);
    if (cpu->mesh != NULL)
        return tcp_reduce_rows(cpu->mesh, send, n_elems, recv, dtype, n_elems, dtype, op, divisor, err);
    if (cpu->shm != NULL)
        return shm_reduce_rows(cpu->shm, send, n_elems, recv, dtype, n_elems, dtype, op, divisor, err);
    copy_block(recv, send, n_elems * fsdp_dtype_size(dtype));
    return FSDP_OK;
}

/*
 * Each rank gets the sum of its node. Each rail then sums one part of it over the nodes, and the node's ranks
 * share the parts. If the buffer is small, or if there is only one rail, a rail sums all of it.
 */
static enum fsdp_status all_reduce(struct cpu *cpu, char *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                   enum fsdp_reduce_op op, int divisor, struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype), L = (size_t)cpu->L;
    const bool shared_out = cpu->mesh != NULL && cpu->shm != NULL && n_elems * size > SMALL_BYTES;
    const size_t part = shared_out ? (n_elems + L - 1) / L : n_elems;

    if (n_elems == 0)
        return FSDP_OK;
    if (cpu->shm != NULL)
        OK_OR_RETURN(shm_reduce_all(cpu->shm, buffer, n_elems, dtype, node_op(cpu, op), divisor, err));
    if (cpu->mesh != NULL) {
        const size_t own = shared_out ? (size_t)cpu->local * part : 0, at = own < n_elems ? own : n_elems;

        OK_OR_RETURN(tcp_reduce_all(cpu->mesh, buffer + at * size, part < n_elems - at ? part : n_elems - at,
                                    dtype, op, divisor, err));
    }
    for (size_t l = 0; l < L && shared_out; l++) {
        const size_t at = l * part < n_elems ? l * part : n_elems;

        OK_OR_RETURN(shm_spread(cpu->shm, buffer + at * size,
                                (part < n_elems - at ? part : n_elems - at) * size, (int)l, err));
    }
    return FSDP_OK;
}

/* The root's rail brings the data to one rank of each node, and that rank spreads it over its node. */
static enum fsdp_status broadcast(struct cpu *cpu, void *buffer, size_t size_bytes, int root,
                                  struct fsdp_err *err)
{
    const int rail = root % cpu->L;

    if (cpu->mesh != NULL && cpu->local == rail)
        OK_OR_RETURN(tcp_spread(cpu->mesh, buffer, size_bytes, root / cpu->L, err));
    if (cpu->shm != NULL)
        OK_OR_RETURN(shm_spread(cpu->shm, buffer, size_bytes, rail, err));
    return FSDP_OK;
}

static enum fsdp_status cpu_run(struct fsdp_comm *comm, const struct comm_work *work, struct fsdp_err *err)
{
    const struct comm_call *call = &work->call;
    const enum fsdp_dtype dtype = (enum fsdp_dtype)call->dtype;
    const enum fsdp_reduce_op op = (enum fsdp_reduce_op)call->op;
    const size_t n_elems = comm_call_elems(call), size_bytes = (size_t)call->size_bytes;
    struct cpu *cpu = comm->state;
    enum fsdp_status status = FSDP_OK;

    if (cpu->shm != NULL)
        shm_enter(cpu->shm, call);
    if (cpu->mesh != NULL)
        tcp_enter(cpu->mesh, call);
    switch (call->kind) {
    case COMM_ALL_GATHER:
        status = gather(cpu, work->send, work->recv, size_bytes, err);
        break;
    case COMM_REDUCE_SCATTER:
        status = reduce_scatter(cpu, work->send, work->recv, n_elems, dtype, op, comm->size, err);
        break;
    case COMM_ALL_REDUCE:
        status = all_reduce(cpu, work->recv, n_elems, dtype, op, comm->size, err);
        break;
    case COMM_BROADCAST:
        status = broadcast(cpu, work->recv, size_bytes, (int)call->root, err);
        break;
    /*
     * a barrier has no data: tcp_leave() is a meeting of each rail, and leave() then one of the node's ranks
     */
    default:
        break;
    }
    return leave(cpu, status, err);
}

static void cpu_fail(struct fsdp_comm *comm, enum fsdp_status status, const char *words)
{
    struct cpu *cpu = comm->state;

    if (cpu->shm != NULL)
        shm_fail(cpu->shm, status, words);
    if (cpu->mesh != NULL)
        tcp_say(cpu->mesh, words);
}

static bool cpu_hear(struct fsdp_comm *comm, struct fsdp_err *err)
{
    struct cpu *cpu = comm->state;

    return (cpu->shm != NULL && shm_hear(cpu->shm, err)) || (cpu->mesh != NULL && tcp_hear(cpu->mesh, err));
}

static const struct comm_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .run = cpu_run,
    .fail = cpu_fail,
    .hear = cpu_hear,
};

enum fsdp_status comm_cpu_open(struct fsdp_comm *comm, const struct comm_config *config,
                               const struct comm_places *places, struct fsdp_err *err)
{
    struct cpu *cpu = calloc(1, sizeof *cpu);
    enum fsdp_status status;

    if (cpu == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "the group's state");
    cpu->N = places->n_nodes;
    cpu->L = places->per_node;
    cpu->node = config->rank / cpu->L;
    cpu->local = config->rank % cpu->L;
    comm->ops = &cpu_ops;
    comm->state = cpu;
    status = open_sides(cpu, config, err);
    if (status != FSDP_OK)
        cpu_close(comm);
    return status;
}
