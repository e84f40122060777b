/*
 * The model of kind gpt2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019. Names
 * and layout are those of Hugging Face: wte, wpe, blocks h.I, ln_f. Each block has ln_1, attn (c_attn
 * computes q, k and v in one product; c_proj), ln_2, and mlp (c_fc, GELU by tanh, c_proj). Weights of linear
 * layers are (in, out), every layer has a bias, and the head shares its weight with wte. Weights start as
 * Normal(0.02). The two linear layers that end in the residual stream are scaled by 1 / sqrt(2 layers).
 */
#ifndef TRAINER_GPT2_H
#define TRAINER_GPT2_H

#include "shard_runtime/trainer/models.h"

/**
 * The names of the parts, and those in Hugging Face's files. The latter may begin with "transformer." or not.
 * The files may also have the attention masks, and the head, which is a copy of wte; loading ignores these.
 */
extern const struct models_kind gpt2_kind;

#endif
