/*
 * Which checkpoint the ranks load. They choose it together, so that all of them load the same step, and they share
 * the work of verifying it: each rank reads the structure of the whole and the checksums of every W-th file.
 */
#ifndef STATE_CHECKPOINT_CHOOSE_H
#define STATE_CHECKPOINT_CHOOSE_H

#include "shard_runtime/engine/context.h"

/**
 * Verify step *step of `directory`, or with *step -1 choose the newest step there that verifies; collective. Newer
 * ones that are damaged are passed over. On failure *step is not changed, and every rank fails.
 *   FSDP_ERR_NOT_FOUND  there is no such checkpoint, or none at all
 *   FSDP_ERR_FORMAT     it is damaged, or all are; the words name the file, and the rank that found the damage
 *   FSDP_ERR_MISMATCH   the ranks see different checkpoints
 */
enum fsdp_status checkpoint_choose(struct fsdp_context *context, const char *directory, int64_t *step,
                                   struct fsdp_err *err);

#endif
