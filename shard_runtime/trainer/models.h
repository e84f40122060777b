/*
 * The models a job can ask for, built from the public API: module tree, sharded bottom-up, one group a block
 * and one for the rest.
 *
 * kind: transformer is the decoder of PyTorch's FSDP2 tutorial: token and learned position embeddings,
 * pre-norm blocks (LayerNorm, attention with separate bias-free q, k, v, o, GELU MLP of four times the width
 * with biases), a final LayerNorm and a bias-free output; dropout on embeddings, attention and both
 * residuals. kind: gpt2 is trainer/gpt2.h.
 */
#ifndef TRAINER_MODELS_H
#define TRAINER_MODELS_H

#include <fsdp/fsdp.h>

#include "shard_runtime/job/job.h"
#include "shard_runtime/trainer/sharding.h"

/**
 * Build and shard the tree that job->model describes, over `meshes` (NULL: all ranks). Its forward functions read numbers of `job`, which
 * outlives it. *root  for fsdp_model_create(); the caller's, by fsdp_module_destroy() FSDP_ERR_CONFIG  a
 * model that cannot be: the message says which keys do not fit
 */
enum fsdp_status models_create(struct fsdp_module **root, const struct job *job,
                               const struct sharding_meshes *meshes, struct fsdp_err *err);

/** How other programs name the parameters of this kind. */
const struct fsdp_weight_names *models_weight_names(const struct job *job);

#endif
