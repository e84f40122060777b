/*
 * Whole tensors of a model or its optimizer on its first rank: what their two state dicts share.
 */
#ifndef STATE_FULL_STATE_H
#define STATE_FULL_STATE_H

#include <fsdp/state_dict.h>

#include "shard_runtime/engine/model.h"

/**
 * Is this the lowest of the model's ranks, which gets or gives the whole tensors? That rank is rank 0 of
 * every group.
 */
bool full_state_is_first(const struct fsdp_model *model);

/** The tensor called `name`, or NULL. */
const struct fsdp_full_tensor *full_state_find(const struct fsdp_full_state_dict *state, const char *name);

/**
 * Checks, on the first rank, that it passes a state in which each tensor has a name and data. If not:
 * FSDP_ERR_ARG.
 */
enum fsdp_status full_state_check(const struct fsdp_model *model, const struct fsdp_full_state_dict *state,
                                  struct fsdp_err *err);

/**
 * Returns FSDP_ERR_MISMATCH if the state has no tensor `name`, or if its shape is not that of `parameter`.
 */
enum fsdp_status full_state_check_tensor(const struct fsdp_full_state_dict *state, const char *name,
                                         const struct fsdp_parameter *parameter, struct fsdp_err *err);

/** Adds a tensor of the parameter's shape to out->tensors, which has room for it. */
enum fsdp_status full_state_add(struct fsdp_full_state_dict *out, const char *name,
                                const struct fsdp_parameter *parameter, struct fsdp_err *err);

#endif
