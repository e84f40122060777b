/*
 * Chooses the checkpoint that the ranks load. The ranks choose together, so all of them load the same step.
 * The ranks also share the work of verification: each rank checks the structure of the whole checkpoint, and
 * the checksums of every W-th file.
 */
#ifndef STATE_CHECKPOINT_CHOOSE_H
#define STATE_CHECKPOINT_CHOOSE_H

#include "shard_runtime/engine/context.h"

/**
 * Verifies step *step of `directory`. If *step is -1, chooses the newest step that verifies and skips newer
 * ones that are damaged. Collective over the world: every rank gets the same status. An error leaves *step
 * unchanged.
 *   FSDP_ERR_NOT_FOUND  there is no such checkpoint, or none at all
 *   FSDP_ERR_FORMAT     it is damaged, or all are; the message names the file and the rank that found the
 *                       damage
 *   FSDP_ERR_MISMATCH   the ranks see different checkpoints
 */
enum fsdp_status checkpoint_choose(struct fsdp_context *context, const char *directory, int64_t *step,
                                   struct fsdp_err *err);

#endif
