/*
 * Modules, which have parameters, and operations, which have none. Names, shapes and mathematics are
 * PyTorch's. A value is (batch, seq, features) in float32 or bfloat16, or (batch, seq) in int32 for tokens. A
 * row is one position of one sample, so a value has batch * seq rows. Operations with parameters compute in
 * the parameters' param_dtype (<fsdp/fully_shard.h>). Operations without parameters compute in float32 if any
 * input is float32.
 *
 * The caller creates a module below a parent, which owns it, and applies it with fsdp_call(). Operations are
 * used inside a forward function. Each operation belongs to the module whose forward is running.
 */
#ifndef FSDP_NN_H
#define FSDP_NN_H

#include <stdbool.h>

#include <fsdp/module.h>

FSDP_BEGIN_DECLS

/* Modules */

/** y = x W^T + b. Parameters weight (out, in), normal; bias (out), zeros, when `bias`. */
FSDP_API struct fsdp_module *fsdp_linear(struct fsdp_module *parent, const char *name, size_t in_features,
                                         size_t out_features, bool bias);

/**
 * A linear layer whose weight is (in, out): y = x W + b, as Conv1D of Hugging Face's GPT-2. Sharding cuts the
 * weight along `in`.
 */
FSDP_API struct fsdp_module *fsdp_conv1d(struct fsdp_module *parent, const char *name, size_t in_features,
                                         size_t out_features, bool bias);

/**
 * y[row] = weight[token[row]]. Parameter weight (rows, dim), normal. A step fails if a token is not from 0 to
 * rows - 1.
 */
FSDP_API struct fsdp_module *fsdp_embedding(struct fsdp_module *parent, const char *name, size_t rows,
                                            size_t dim);

/**
 * y = (x - mean) / sqrt(var + eps) * weight + bias over the features. Parameters weight (dim), ones; bias
 * (dim), zeros.
 */
FSDP_API struct fsdp_module *fsdp_layer_norm(struct fsdp_module *parent, const char *name, size_t dim,
                                             float eps);

/** y = x / sqrt(mean(x^2) + eps) * weight over the features. Parameter weight (dim), ones. */
FSDP_API struct fsdp_module *fsdp_rms_norm(struct fsdp_module *parent, const char *name, size_t dim,
                                           float eps);

/**
 * Multi-head self-attention. Its children wq, wk, wv and wo are Linear(dim, dim) without bias. `heads` must
 * divide `dim`. `dropout` is the probability of dropping an attention probability in training.
 */
FSDP_API struct fsdp_module *fsdp_attention(struct fsdp_module *parent, const char *name, size_t dim,
                                            size_t heads, bool causal, float dropout);

/* Operations */

/**
 * Token embedding plus a learned position embedding: tokens.weight[token] + positions.weight[place in
 * sequence]. `positions` may be NULL; otherwise it is an embedding of at least seq rows.
 */
FSDP_API struct fsdp_value *fsdp_embed(struct fsdp_module *tokens, struct fsdp_module *positions,
                                       struct fsdp_value *input);

/** Exact GELU: x * Phi(x). */
FSDP_API struct fsdp_value *fsdp_gelu(struct fsdp_value *x);

/** GELU by tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
FSDP_API struct fsdp_value *fsdp_gelu_tanh(struct fsdp_value *x);

/** SiLU, also known as swish: x * sigmoid(x), as torch.nn.functional.silu. */
FSDP_API struct fsdp_value *fsdp_silu(struct fsdp_value *x);

/**
 * In training, drops elements with probability p and scales the others by 1 / (1 - p). The mask is a function
 * of (seed, place in the tree, global sample, element), so it is the same at every world size.
 */
FSDP_API struct fsdp_value *fsdp_dropout(struct fsdp_value *x, float p);

/** a + b, element-wise: a residual connection. */
FSDP_API struct fsdp_value *fsdp_add(struct fsdp_value *a, struct fsdp_value *b);

/** a + dropout(b) in one pass: a residual connection whose branch ends in dropout. */
FSDP_API struct fsdp_value *fsdp_add_dropout(struct fsdp_value *a, struct fsdp_value *b, float p);

/** Converts x to `dtype`, float32 or bfloat16. Returns x itself if it has that dtype already. */
FSDP_API struct fsdp_value *fsdp_cast(struct fsdp_value *x, enum fsdp_dtype dtype);

/** softmax(q k^T / sqrt(features / heads)) v for each head. q, k and v have the same shape. */
FSDP_API struct fsdp_value *fsdp_scaled_dot_product_attention(struct fsdp_value *q, struct fsdp_value *k,
                                                              struct fsdp_value *v, size_t heads, bool causal,
                                                              float dropout);

/**
 * The same attention for one tensor that holds q, k and v, in this order: each is a third of its features.
 */
FSDP_API struct fsdp_value *fsdp_packed_attention(struct fsdp_value *qkv, size_t heads, bool causal,
                                                  float dropout);

FSDP_END_DECLS

#endif
