/*
 * The model of kind gpt2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019. Names
 * and layout are those of Hugging Face: wte, wpe, blocks h.I, ln_f. Each block has ln_1, attn (c_attn
 * computes q, k and v in one product; c_proj), ln_2, and mlp (c_fc, GELU by tanh, c_proj). Weights of linear
 * layers are (in, out), every layer has a bias, and the head shares its weight with wte. Weights start as
 * Normal(0.02). The two linear layers that end in the residual stream are scaled by 1 / sqrt(2 layers).
 */
#ifndef TRAINER_GPT2_H
#define TRAINER_GPT2_H

#include <fsdp/fsdp.h>

#include "shard_runtime/job/job.h"

/**
 * Creates the tree, with its head tied and not sharded yet. Its forward functions read `job`, which must
 * outlive the tree. The caller owns *root, also after a failure.
 */
enum fsdp_status gpt2_create(struct fsdp_module **root, const struct job *job, struct fsdp_err *err);

/**
 * The names in Hugging Face's files. They may begin with "transformer." or not. The files may also have the
 * attention masks, and the head, which is a copy of wte; loading ignores these.
 */
extern const struct fsdp_weight_names gpt2_weight_names;

#endif
