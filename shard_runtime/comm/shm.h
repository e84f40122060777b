/*
 * The ranks of one host through one memfd segment: a head with the counters of their meetings, and two
 * staging slots for each rank. A collective is cut into chunks. For each chunk:
 *   1. Every rank copies its part into its slot.
 *   2. All ranks meet: each waits until all have come.
 *   3. Every rank reads what it needs from the slots of the others.
 *
 * Two slots and one meeting per chunk are enough. A rank comes to the meeting of chunk k+1 only after it has
 * read all that it needs of chunk k. So whoever passes that meeting may overwrite the slot of chunk k.
 * Writing chunk k+1 therefore overlaps with the others' reading of chunk k, also from one collective to the
 * next.
 *
 * A rank that waits first spins (only if the host's ranks do not outnumber its CPUs). Then it sleeps on a
 * futex in short slices, and checks between them whether it waits in vain (watch.h).
 *
 * cpu.c makes collectives of these steps. Thread: one at a time.
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
    int first, n;        /* the group's ranks on this host are first ... first + n - 1 */
    int self;            /* index of this one among them, 0 ... n - 1 */
    size_t chunk_bytes;  /* of a slot; 0: the default */
};

/** Returns the bytes of the segment of `n` ranks, with slots of the default size. */
size_t shm_segment_bytes(int n);

/**
 * Makes or joins the segment, and waits for the others. Collective over the host's members. *out is the
 * caller's to destroy; NULL after an error.
 *   FSDP_ERR_NOMEM     the host has not enough memory for the segment
 *   FSDP_ERR_MISMATCH  ranks ask for different chunks
 *   FSDP_ERR_PEER      another rank or the agent is gone
 */
enum fsdp_status shm_create(struct shm **out, const struct shm_config *config, struct fsdp_err *err);
/** Unmaps the segment. Ranks that still wait for this one get FSDP_ERR_PEER. NULL is a no-op. */
void shm_destroy(struct shm *shm);

/**
 * Begins a collective: the steps that follow belong to `call`. The first meeting compares it with the calls
 * of the others before any data is read, and fails with FSDP_ERR_MISMATCH if they differ.
 */
void shm_enter(struct shm *shm, const struct comm_call *call);
/** Ends the collective. Meets the others if no step did, so that the calls are always compared. */
enum fsdp_status shm_leave(struct shm *shm, struct fsdp_err *err);

/**
 * Tells the other ranks of this host that this one leaves, with `words`. They end with FSDP_ERR_MISMATCH if
 * `status` is that, otherwise with FSDP_ERR_PEER. Only the first call of any rank counts.
 */
void shm_fail(struct shm *shm, enum fsdp_status status, const char *words);

/** Returns whether a rank called shm_fail(), with its status and words in `err`. Never waits. */
bool shm_hear(const struct shm *shm, struct fsdp_err *err);

/*
 * The steps. Every member on the host calls the same steps with the same sizes. A step that fails has called
 * shm_fail() already; its buffers are then undefined.
 */

/**
 * Fills recv (n, bytes) with every member's `send` (bytes). `send` may be this rank's own block of `recv`.
 */
enum fsdp_status shm_gather(struct shm *shm, const void *send, void *recv, size_t bytes,
                            struct fsdp_err *err);

/**
 * Reduces row `self` of every member's `send` into `recv`.
 *
 *   send     n rows of `dtype`, (n_elems) each, that begin `stride` elements apart
 *   recv     (n_elems) of out_dtype; may be row `self` of `send`
 *   op, divisor, and the pairs of dtypes: see reduce.h
 */
enum fsdp_status shm_reduce_rows(struct shm *shm, const void *send, size_t stride, void *recv,
                                 enum fsdp_dtype out_dtype, size_t n_elems, enum fsdp_dtype dtype,
                                 enum fsdp_reduce_op op, int divisor, struct fsdp_err *err);

/**
 * Replaces buffer (n_elems) by its reduction over the members, on each of them. op and divisor: see reduce.h.
 */
enum fsdp_status shm_reduce_all(struct shm *shm, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                enum fsdp_reduce_op op, int divisor, struct fsdp_err *err);

/** Copies `buffer` of member `root` (0 ... n - 1) to the `buffer` of all others. */
enum fsdp_status shm_spread(struct shm *shm, void *buffer, size_t bytes, int root, struct fsdp_err *err);

/** Waits until every member has come here. */
enum fsdp_status shm_meet(struct shm *shm, struct fsdp_err *err);

#endif
