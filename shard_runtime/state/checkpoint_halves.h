/*
 * The two halves that a save to a directory and a save to memory have in common. The first runs before shards
 * are written, the second after they were read. Both are collective over the world.
 */
#ifndef STATE_CHECKPOINT_HALVES_H
#define STATE_CHECKPOINT_HALVES_H

#include <fsdp/checkpoint.h>

#include "shard_runtime/checkpoint/save.h"
#include "shard_runtime/shardfile/manifest.h"
#include "shard_runtime/state/state_tensors.h"

/**
 * Checks that the state can be saved, and that all ranks save the same step; then lists it in *tensors. `own`
 * is the status of this rank so far. Every rank gets the same status.
 */
enum fsdp_status checkpoint_gather(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                   const struct fsdp_checkpoint_state *state, enum fsdp_status own,
                                   struct state_tensors *tensors, struct fsdp_err *err);

/** What the manifest says of the state. All strings are borrowed. */
struct checkpoint_state checkpoint_state_of(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                            const struct fsdp_checkpoint_state *state, const char *numerics,
                                            const char *job_json);

/**
 * Call it after the rows of model and optimizer were read, with the status `own` on this rank. Sets the
 * counters of model and optimizer, and *state, from the manifest. Every rank gets the same status.
 */
enum fsdp_status checkpoint_adopt(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                                  const struct manifest *manifest, enum fsdp_status own,
                                  struct fsdp_checkpoint_state *state, struct fsdp_err *err);

#endif
