/*
 * The models that a job can name, built from the public API. The module tree is sharded bottom-up: one group
 * for each block and one group for the rest.
 *
 * Kind transformer is the decoder of PyTorch's FSDP2 tutorial:
 *   - token embeddings and learned position embeddings;
 *   - pre-norm blocks: LayerNorm; attention with separate q, k, v, o without bias; a GELU MLP with biases and
 *     four times the width;
 *   - a final LayerNorm and an output layer without bias;
 *   - dropout on the embeddings, the attention and both residuals.
 * Kind gpt2 is described in trainer/gpt2.h.
 */
#ifndef TRAINER_MODELS_H
#define TRAINER_MODELS_H

#include <fsdp/fsdp.h>

#include "shard_runtime/job/job.h"
#include "shard_runtime/trainer/sharding.h"

/**
 * Builds and shards the tree that job->model describes, over `meshes` (NULL: over all ranks). The forward
 * functions of the tree read numbers of `job`, which must outlive the tree.
 *   *root            the tree for fsdp_model_create(); the caller destroys it by fsdp_module_destroy()
 *   FSDP_ERR_CONFIG  the model is impossible: the message names the keys that do not fit together
 */
enum fsdp_status models_create(struct fsdp_module **root, const struct job *job,
                               const struct sharding_meshes *meshes, struct fsdp_err *err);

/** A kind of model: the names of its parts, as in the parameters' names, and its blocks. */
struct models_kind {
    const char *name; /* model.kind */
    const char *tokens, *positions, *blocks, *norm, *head;
    bool tied; /* the head always shares the weight of `tokens`; otherwise as the job says */
    void (*add_block)(struct fsdp_module *blocks, uint64_t index, const struct job *job);
    struct fsdp_weight_names weights; /* in the files of other programs */
};

/** The names that other programs give the parameters of this kind of model. */
const struct fsdp_weight_names *models_weight_names(const struct job *job);

/** Calls the child `name` of `self` with `input`. */
struct fsdp_value *models_call(struct fsdp_module *self, const char *name, struct fsdp_value *input);

/**
 * Adds a residual block with the name `index`. The caller adds its children: a norm, the part that takes the
 * norm's output, and a second such pair. The block's forward function reads `job`, which outlives it.
 */
struct fsdp_module *models_add_block(struct fsdp_module *blocks, uint64_t index, const struct job *job);

#endif
