/*
 * One TCP connection to each of the other nodes, and the steps of collectives over them. Each local rank has
 * a mesh of its own, a rail, so that all ranks move data. cpu.c makes collectives of these steps.
 *
 * Data goes straight from the rank that has it to the one that needs it. Sums are taken chunk by chunk in
 * node order, whatever order the chunks arrive in. The connections are clear text, opened by a proof of the
 * generation's token (tcp_open.h). All of them are non-blocking, around one poll(); a system call moves 256
 * KiB at most.
 *
 *   tcp_open.c      opens the connections
 *   tcp_mesh.c      moves bytes on them: the exchange, and failures
 *   tcp_steps.c     what the collectives send to whom, and the sums
 *   tcp_mesh_impl.h what the last two share
 *
 * Thread: one at a time.
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
    int n, self;         /* nodes, and the index of this one */
    int rail, rails;     /* node i's end of this mesh is rank i * rails + rail of the group */
};

/** Returns the bytes that a mesh of `n` nodes keeps for chunks that it sums. */
size_t tcp_staging_bytes(int n);

/**
 * Connects all nodes of the rail to each other; collective over the rail. No socket listens any more when it
 * returns. *out is the caller's to destroy; NULL after an error. FSDP_ERR_PEER: see tcp_open_all().
 */
enum fsdp_status tcp_mesh_create(struct tcp_mesh **out, const struct tcp_mesh_config *config,
                                 struct fsdp_err *err);
/** Closes the connections: nodes that wait for this one get FSDP_ERR_PEER. NULL is a no-op. */
void tcp_mesh_destroy(struct tcp_mesh *mesh);

/**
 * Begins a collective. `call` is sent ahead of the data. What the others sent is compared with it before any
 * of their data is taken; a difference is FSDP_ERR_MISMATCH.
 */
void tcp_enter(struct tcp_mesh *mesh, const struct comm_call *call);
/** Ends the collective: waits until everything has been sent, and until all calls have been compared. */
enum fsdp_status tcp_leave(struct tcp_mesh *mesh, struct fsdp_err *err);

/**
 * Breaks the connections, so that the other nodes get FSDP_ERR_PEER now, and not only when this process ends.
 */
void tcp_fail(struct tcp_mesh *mesh);

/**
 * Does what tcp_fail() does, between two collectives, with a reason: nodes that wait for this rank get
 * FSDP_ERR_PEER with `words`.
 */
void tcp_say(struct tcp_mesh *mesh, const char *words);

/**
 * Returns whether a node called tcp_say(), with its words in `err`. Called between two collectives. It waits
 * only for the rest of words that have begun to arrive.
 */
bool tcp_hear(struct tcp_mesh *mesh, struct fsdp_err *err);

/*
 * The steps. Every node of the rail calls the same steps with the same sizes. Buffers that are sent from are
 * in use until the step returns. After a failure the connections are broken and the results undefined.
 */

/**
 * Fills block i of `recv` with node i's `send` (bytes), for every other node. Block i is at i * stride bytes.
 * The caller fills in its own block.
 */
enum fsdp_status tcp_gather(struct tcp_mesh *mesh, const void *send, void *recv, size_t stride, size_t bytes,
                            struct fsdp_err *err);

/**
 * Reduces row `self` of every node's `send` into `recv`.
 *
 *   send     n rows of `dtype`, (n_elems) each, that begin `stride` elements apart
 *   recv     (n_elems) of out_dtype; may be row `self` of `send`
 *   op, divisor, and the pairs of dtypes: see reduce.h
 */
enum fsdp_status tcp_reduce_rows(struct tcp_mesh *mesh, const void *send, size_t stride, void *recv,
                                 enum fsdp_dtype out_dtype, size_t n_elems, enum fsdp_dtype dtype,
                                 enum fsdp_reduce_op op, int divisor, struct fsdp_err *err);

/**
 * Replaces buffer (n_elems) by its reduction over the nodes, on each of them. op and divisor: see reduce.h.
 */
enum fsdp_status tcp_reduce_all(struct tcp_mesh *mesh, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                enum fsdp_reduce_op op, int divisor, struct fsdp_err *err);

/** Copies `buffer` of node `root` to the `buffer` of all others. */
enum fsdp_status tcp_spread(struct tcp_mesh *mesh, void *buffer, size_t bytes, int root,
                            struct fsdp_err *err);

#endif
