/*
 * Applies the job's settings on sharding to a model's tree: which modules form groups, each group's policy,
 * which activations backward recomputes, and the mesh. This code works with names of modules. It assumes only
 * that the blocks are the children of "layers" or, in Hugging Face's GPT-2, of "h".
 */
#ifndef TRAINER_SHARDING_H
#define TRAINER_SHARDING_H

#include <fsdp/fsdp.h>

#include "shard_runtime/job/job.h"

/**
 * Shards the tree bottom-up as job->parallel asks; the root gets the parameters that are left.
 * FSDP_ERR_CONFIG: a rule matches no module, or is impossible.
 */
enum fsdp_status sharding_apply(struct fsdp_module *root, const struct job *job,
                                struct fsdp_device_mesh *mesh, struct fsdp_err *err);

/**
 * Adapts units to a world with another number of ranks than the job was written for. A unit's
 * reshard_after_forward may be a number that does not divide the `W` ranks that shard. Such a number becomes
 * the largest smaller one that divides W. This changes no result. Must be called before the model is created.
 * Returns the number of units that were changed.
 */
int sharding_fit_slices(struct fsdp_module *root, int W);

/** Wraps the blocks that job->parallel.activation_checkpoint selects. */
void sharding_checkpoint_blocks(struct fsdp_module *root, const struct job *job);

/**
 * The world as a grid (replicate, shard, tensor), cut by job->parallel.replicate and job->parallel.tensor.
 * The ranks of a tensor group are neighbours, so that their many all-reduces stay inside a node.
 */
struct sharding_meshes {
    struct fsdp_device_mesh *all; /* the whole grid, which owns the process groups; NULL if both are 1 */
    /* the mesh that units are sharded over, (replicate, shard) or (shard); NULL: all ranks */
    struct fsdp_device_mesh *data;
    struct fsdp_device_mesh *tensor; /* the mesh that blocks are split over; NULL: blocks are not split */
};

/**
 * Makes the meshes. `context` NULL: for planning only. The caller closes them, also after a failure.
 * FSDP_ERR_CONFIG: the number of ranks W is not a multiple of the job's numbers.
 */
enum fsdp_status sharding_meshes_open(struct sharding_meshes *meshes, const struct job *job, int W,
                                      struct fsdp_context *context, struct fsdp_err *err);
void sharding_meshes_close(struct sharding_meshes *meshes);

/** The number of ranks, of W, that have samples of their own; and the index of `rank` among them. */
int sharding_data_ranks(const struct job *job, int W);
int sharding_data_rank(const struct job *job, int rank);

/**
 * Splits attention and feed_forward of each block over `tensor`: their first linear layers by columns, their
 * last ones by rows.
 */
enum fsdp_status sharding_split(struct fsdp_module *root, struct fsdp_device_mesh *tensor,
                                struct fsdp_err *err);

#endif
