/*
 * The ranks of one host through one memfd segment: a head with the counters they meet at, and two staging slots a
 * rank. A collective is cut into chunks; in each, every rank copies its part into its slot, all meet, and every
 * rank reads what it needs from the slots of the others.
 *
 * Two slots and one meeting a chunk suffice: a rank that has passed the meeting of chunk k+1 has read all it needs
 * of chunk k, so whoever passes that meeting may overwrite the slot of chunk k. Writing chunk k+1 thus overlaps the
 * others' reading of chunk k, also from one collective to the next.
 *
 * A meeting spins for a moment (only while the host's ranks do not outnumber its CPUs), then sleeps on a futex in
 * short slices and looks between them whether it waits in vain (watch.h).
 *
 * `shm.c` gives these steps the shape of a back end; `joined.c` uses them inside each host.
 */
#ifndef COMM_SHM_H
#define COMM_SHM_H

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/comm/watch.h"

struct shm;

struct shm_config {
    const char *name; /* of the group */
    struct link *link;
    struct watch *watch; /* over the same ranks; borrowed, outlives the segment */
    int node;            /* which host: the segment's key is made of it */
    int first, n;        /* the group's ranks on this host are first ... first + n - 1 */
    int self;            /* index of this one among them, 0 ... n - 1 */
    size_t chunk_bytes;  /* of a slot; 0: the default */
};

/** Bytes of the segment of `n` ranks, with slots of the default size. */
size_t shm_segment_bytes(int n);

/** Make or join the segment and wait for the others; collective over the host's members. */
enum fsdp_status shm_create(struct shm **out, const struct shm_config *config, struct fsdp_err *err);
/** Others that still wait for this rank get FSDP_ERR_PEER. */
void shm_destroy(struct shm *shm);

/**
 * Begin a collective: what follows belongs to `call`, and the first meeting compares it with the others' calls
 * (FSDP_ERR_MISMATCH) before anything is read. shm_leave() meets if nothing else did.
 */
void shm_enter(struct shm *shm, const struct comm_call *call);
enum fsdp_status shm_leave(struct shm *shm, struct fsdp_err *err);

/** Tell the others of this host that this rank leaves the collective with `status`; they end with it too. */
void shm_fail(struct shm *shm, enum fsdp_status status, const char *words);

/** Did another do so? Its words are in `err` then. Never waits. */
bool shm_hear(const struct shm *shm, struct fsdp_err *err);

/*
 * The steps. Every member of the host calls the same with the same sizes. A step that fails has told the others.
 */

/** recv (n, bytes): every member's `send` (bytes); `send` may be its own block. */
enum fsdp_status shm_gather(struct shm *shm, const void *send, void *recv, size_t bytes,
                            struct fsdp_err *err);

/**
 * recv (n_elems) of out_dtype = reduction of row `self` of every member's `send`, whose n rows begin `stride`
 * elements apart. recv may be that row itself. See reduce.h for op, divisor and the dtypes.
 */
enum fsdp_status shm_reduce_rows(struct shm *shm, const void *send, size_t stride, void *recv,
                                 enum fsdp_dtype out_dtype, size_t n_elems, enum fsdp_dtype dtype,
                                 enum fsdp_reduce_op op, int divisor, struct fsdp_err *err);

/** buffer (n_elems) = its reduction over the members, on each of them. */
enum fsdp_status shm_reduce_all(struct shm *shm, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                enum fsdp_reduce_op op, int divisor, struct fsdp_err *err);

/** buffer of member `root` (0 ... n - 1) to all. */
enum fsdp_status shm_spread(struct shm *shm, void *buffer, size_t bytes, int root, struct fsdp_err *err);

/** Meet. */
enum fsdp_status shm_meet(struct shm *shm, struct fsdp_err *err);

#endif
