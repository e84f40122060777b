/*
 * One TCP connection to each of the other nodes, and the steps of the collectives over them. `tcp.c` is the back
 * end of one rank a node; `joined.c` has one mesh for each local rank (a rail), so that all ranks move data.
 *
 * Data goes straight from its rank to the one that needs it. Sums are taken chunk by chunk in node order, whatever
 * order the chunks arrive in. A connection in clear text, opened by a proof of the generation's token
 * (tcp_open.h); 256 KiB a system call, everything non-blocking around one poll().
 */
#ifndef COMM_TCP_MESH_H
#define COMM_TCP_MESH_H

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/comm/watch.h"

struct tcp_mesh;

struct tcp_mesh_config {
    const char *name; /* of the group */
    struct link *link;
    struct watch *watch; /* borrowed, outlives the mesh */
    int n, self;         /* nodes, and this one among them */
    int rail, rails;     /* node i's end of this mesh is rank i * rails + rail of the group */
};

/** Bytes that a mesh of `n` nodes keeps for what is summed. */
size_t tcp_staging_bytes(int n);

/** Connect all to all; collective over the rail. Nothing listens any more when it returns. */
enum fsdp_status tcp_mesh_create(struct tcp_mesh **out, const struct tcp_mesh_config *config,
                                 struct fsdp_err *err);
void tcp_mesh_destroy(struct tcp_mesh *mesh);

/**
 * Begin a collective: `call` goes ahead of its data, and is compared with what the others sent before any of their
 * data is taken (FSDP_ERR_MISMATCH). tcp_leave() waits until all has been sent, and compares if no step did.
 */
void tcp_enter(struct tcp_mesh *mesh, const struct comm_call *call);
enum fsdp_status tcp_leave(struct tcp_mesh *mesh, struct fsdp_err *err);

/** Break the connections: the others get FSDP_ERR_PEER at once, not only when this process ends. */
void tcp_fail(struct tcp_mesh *mesh);

/** The same between two collectives, and say why: FSDP_ERR_PEER has these words for whoever waits for this rank. */
void tcp_say(struct tcp_mesh *mesh, const char *words);

/** Between two collectives: did a node do so? Its words are in `err` then. Never waits for them to begin. */
bool tcp_hear(struct tcp_mesh *mesh, struct fsdp_err *err);

/* The steps; buffers that are sent from are in use until tcp_leave() or a step that says otherwise. */

/** Block i of recv, at i * stride bytes, = node i's `send` (bytes). The own block is the caller's to fill. */
enum fsdp_status tcp_gather(struct tcp_mesh *mesh, const void *send, void *recv, size_t stride, size_t bytes,
                            struct fsdp_err *err);

/**
 * recv (n_elems) of out_dtype = reduction of row `self` of every node's `send`, rows `stride` elements apart; recv
 * may be that row itself. `send` is free again when this returns.
 */
enum fsdp_status tcp_reduce_rows(struct tcp_mesh *mesh, const void *send, size_t stride, void *recv,
                                 enum fsdp_dtype out_dtype, size_t n_elems, enum fsdp_dtype dtype,
                                 enum fsdp_reduce_op op, int divisor, struct fsdp_err *err);

/** buffer (n_elems) = its reduction over the nodes, on each of them. */
enum fsdp_status tcp_reduce_all(struct tcp_mesh *mesh, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                enum fsdp_reduce_op op, int divisor, struct fsdp_err *err);

/** buffer of node `root` to all. */
enum fsdp_status tcp_spread(struct tcp_mesh *mesh, void *buffer, size_t bytes, int root,
                            struct fsdp_err *err);

#endif
