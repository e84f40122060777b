/*
 * kind: gpt2, the model of Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, as Hugging Face
 * names and lays it: wte, wpe, blocks h.I of ln_1, attn (c_attn gives q, k and v at once; c_proj), ln_2, mlp (c_fc,
 * GELU by tanh, c_proj), and ln_f. The weight of a product is (in, out), everything has a bias, the head is wte.
 * Normal(0.02), the two products that end in the residual stream scaled by 1 / sqrt(2 layers).
 */
#ifndef TRAINER_GPT2_H
#define TRAINER_GPT2_H

#include <fsdp/fsdp.h>

#include "shard_runtime/job/job.h"

/** The tree, head tied, not sharded yet; its forward functions read `job`, which outlives it. *root is the caller's
 * also after a failure. */
enum fsdp_status gpt2_create(struct fsdp_module **root, const struct job *job, struct fsdp_err *err);

/** How Hugging Face's files name it: with "transformer." in front or not; its masks and the head, which is wte once
 * more, may stand beside it. */
extern const struct fsdp_weight_names gpt2_weight_names;

#endif
