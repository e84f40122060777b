/*
 * What a job says about sharding, done to a model's tree: which modules form groups and with which policy, what backward
 * computes again, over which mesh. It knows names, and of the model only that its blocks are
 * the children of "layers" or, by Hugging Face's names of GPT-2, of "h".
 */
#ifndef TRAINER_SHARDING_H
#define TRAINER_SHARDING_H

#include <fsdp/fsdp.h>

#include "shard_runtime/job/job.h"

/** Shard the tree bottom-up, as job->parallel says; the root takes what is left. FSDP_ERR_CONFIG: a rule that fits no
 * module, or cannot be. */
enum fsdp_status sharding_apply(struct fsdp_module *root, const struct job *job,
                                struct fsdp_device_mesh *mesh, struct fsdp_err *err);

/** Wrap the blocks that job->parallel.activation_checkpoint means. */
void sharding_checkpoint_blocks(struct fsdp_module *root, const struct job *job);

/**
 * The mesh that job->parallel.replicate asks for in a world of W: (replicate, shard); NULL where it is 1. `context`
 * NULL: for planning. FSDP_ERR_CONFIG: W ranks are no multiple of the copies.
 */
enum fsdp_status sharding_mesh(struct fsdp_device_mesh **mesh, const struct job *job, int W,
                               struct fsdp_context *context, struct fsdp_err *err);

#endif
