/*
 * A second thread of a rank that runs the gathers and reductions of a program while the first one computes. It takes
 * them one after another in the order they are given, which is the program's, so that every rank's collectives keep
 * their order. It never enters OpenMP or a numerics library.
 *
 * Results do not depend on it: the plan says which entry must wait for which, and both threads hold to that.
 */
#ifndef ENGINE_OVERLAP_H
#define ENGINE_OVERLAP_H

#include <stdbool.h>

#include <fsdp/status.h>

struct overlap;

/** Runs entry `entry` of whatever `user` is; called on the second thread. */
typedef enum fsdp_status (*overlap_run_fn)(void *user, int entry, struct fsdp_err *err);

/** `capacity`: entries that may be given and not yet done. */
enum fsdp_status overlap_create(struct overlap **out, int capacity, struct fsdp_err *err);
/** Nothing may be under way. NULL is a no-op. */
void overlap_destroy(struct overlap *overlap);

/** Give it an entry; never waits. Everything the caller wrote before is seen by `run`. After a failure entries are
 * passed over. */
void overlap_give(struct overlap *overlap, overlap_run_fn run, void *user, int entry);

/** Wait until `entry` and all given before it are done; its failure, or that of one before it. An entry that takes no
 * part in this micro-step stands for those before it, whose order was derived through it. */
enum fsdp_status overlap_wait(struct overlap *overlap, int entry, struct fsdp_err *err);

/** Wait until all that was given is done; the first failure since the last call, which is then forgotten. */
enum fsdp_status overlap_finish(struct overlap *overlap, struct fsdp_err *err);

#endif
