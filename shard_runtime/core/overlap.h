/*
 * A second thread, which runs entries while the first thread computes. It runs them one by one in the order
 * in which they are given. A step gives it gathers and reductions. They are given in the order of the step's
 * program, so every rank calls its collectives in the same order. An optimizer with its state in a file gives
 * it reads and writes.
 *
 * The thread never enters OpenMP or a numerics library, and no result depends on it.
 */
#ifndef CORE_OVERLAP_H
#define CORE_OVERLAP_H

#include <fsdp/status.h>

struct overlap;

/** Runs entry `entry`. `user` is what overlap_give() was given. Called on the second thread. */
typedef enum fsdp_status (*overlap_run_fn)(void *user, int entry, struct fsdp_err *err);

/**
 * Start the thread. At most `capacity` entries may be given but not done. The thread calls `begin` before its
 * first entry (NULL: nothing). FSDP_ERR_NOMEM: no memory, or no thread.
 */
enum fsdp_status overlap_create(struct overlap **out, int capacity, void (*begin)(void),
                                struct fsdp_err *err);
/** End the thread. Every entry must be done. NULL is a no-op. */
void overlap_destroy(struct overlap *overlap);

/**
 * Give the thread an entry, without waiting. `run` sees everything that the caller wrote before. After a
 * failure the thread skips all entries until overlap_finish().
 */
void overlap_give(struct overlap *overlap, overlap_run_fn run, void *user, int entry);

/**
 * Wait until `entry`, and all entries that were given before it, are done. Returns the first failure among
 * them. `entry` may be one that was not given in this micro-step: then the call waits for the entries before
 * it.
 */
enum fsdp_status overlap_wait(struct overlap *overlap, int entry, struct fsdp_err *err);

/** Wait until every given entry is done. Returns the first failure since the last call, and forgets it. */
enum fsdp_status overlap_finish(struct overlap *overlap, struct fsdp_err *err);

#endif
