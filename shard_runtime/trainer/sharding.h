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

/**
 * For a world that the job was not written for: where a unit's reshard_after_forward is a number that does not divide the `W`
 * ranks that shard, it becomes the largest smaller one that does. Changes no result. Returns how many units it changed. Before
 * the model.
 */
int sharding_fit_slices(struct fsdp_module *root, int W);

/** Wrap the blocks that job->parallel.activation_checkpoint means. */
void sharding_checkpoint_blocks(struct fsdp_module *root, const struct job *job);

/**
 * The world as job->parallel.replicate and tensor cut it: (replicate, shard, tensor). The ranks of a tensor group are
 * neighbours, so that their many all-reduces stay inside a node.
 */
struct sharding_meshes {
    struct fsdp_device_mesh *all; /* has the groups; NULL where both are 1 */
    struct fsdp_device_mesh
        *data; /* what units are sharded over: (replicate, shard) or (shard); NULL: all ranks */
    struct fsdp_device_mesh *tensor; /* what blocks are split over; NULL: they are not */
};

/** `context` NULL: for planning. To be closed also after a failure. FSDP_ERR_CONFIG: W ranks are no multiple of these. */
enum fsdp_status sharding_meshes_open(struct sharding_meshes *meshes, const struct job *job, int W,
                                      struct fsdp_context *context, struct fsdp_err *err);
void sharding_meshes_close(struct sharding_meshes *meshes);

/** Ranks with samples of their own, of W; and which of these `rank` is. */
int sharding_data_ranks(const struct job *job, int W);
int sharding_data_rank(const struct job *job, int rank);

/** Split attention and feed_forward of each block over `tensor`: columns of what goes in, rows of what comes out. */
enum fsdp_status sharding_split(struct fsdp_module *root, struct fsdp_device_mesh *tensor,
                                struct fsdp_err *err);

#endif
