/*
 * A second thread of a rank, which runs the gathers and reductions of a program while the first thread
 * computes. It runs them one by one in the order in which they are given. That is the program's order, so
 * every rank calls its collectives in the same order. The thread never enters OpenMP or a numerics library.
 *
 * Results do not depend on it: the plan says which entry waits for which, and both threads follow that.
 */
#ifndef ENGINE_OVERLAP_H
#define ENGINE_OVERLAP_H

#include <fsdp/status.h>

struct overlap;

/** Runs entry `entry`. `user` is what overlap_give() was given. Called on the second thread. */
typedef enum fsdp_status (*overlap_run_fn)(void *user, int entry, struct fsdp_err *err);

/**
 * Start the thread. `capacity` is how many entries may be given and not yet done. FSDP_ERR_NOMEM: no memory,
 * or no thread.
 */
enum fsdp_status overlap_create(struct overlap **out, int capacity, struct fsdp_err *err);
/** End the thread. Every entry must be done. NULL is a no-op. */
void overlap_destroy(struct overlap *overlap);

/**
 * Give the thread an entry, without waiting. `run` sees everything that the caller wrote before. After a
 * failure the thread skips all entries until overlap_finish().
 */
void overlap_give(struct overlap *overlap, overlap_run_fn run, void *user, int entry);

/**
 * Wait until `entry`, and all entries that were given before it, are done. Returns the first failure among
 * them. `entry` may be one that takes no part in this micro-step; it then stands for the entries before it.
 */
enum fsdp_status overlap_wait(struct overlap *overlap, int entry, struct fsdp_err *err);

/** Wait until every given entry is done. Returns the first failure since the last call, and forgets it. */
enum fsdp_status overlap_finish(struct overlap *overlap, struct fsdp_err *err);

#endif
