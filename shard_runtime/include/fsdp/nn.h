/*
 * Modules with parameters, and operations without. Names, shapes and mathematics are PyTorch's. A value is
 * (batch, seq, features) float32 or bfloat16, or (batch, seq) int32 for tokens; `rows` below are batch * seq. What is
 * computed with parameters has their param_dtype (<fsdp/fully_shard.h>); without, float32 where any input is.
 *
 * Modules are created under a parent that owns them and applied with fsdp_call(). Operations are used inside
 * a forward function; each belongs to the module whose forward is running.
 */
#ifndef FSDP_NN_H
#define FSDP_NN_H

#include <stdbool.h>

#include <fsdp/module.h>

FSDP_BEGIN_DECLS

/* --- modules ---------------------------------------------------------------------------------------------
 */

/** y = x W^T + b. Parameters weight (out, in), normal; bias (out), zeros, when `bias`. */
FSDP_API struct fsdp_module *fsdp_linear(struct fsdp_module *parent, const char *name, size_t in_features,
                                         size_t out_features, bool bias);
/** The same with its weight as (in, out), y = x W + b: Conv1D of Hugging Face's GPT-2. It is cut along `in`. */
FSDP_API struct fsdp_module *fsdp_conv1d(struct fsdp_module *parent, const char *name, size_t in_features,
                                         size_t out_features, bool bias);
/** y[row] = weight[token[row]]. Parameter weight (rows, dim), normal. A token outside is refused when the
 * step runs. */
FSDP_API struct fsdp_module *fsdp_embedding(struct fsdp_module *parent, const char *name, size_t rows,
                                            size_t dim);
/** y = (x - mean) / sqrt(var + eps) * weight + bias over the features. Parameters weight (dim), ones; bias,
 * zeros. */
FSDP_API struct fsdp_module *fsdp_layer_norm(struct fsdp_module *parent, const char *name, size_t dim,
                                             float eps);
/** y = x / sqrt(mean(x^2) + eps) * weight over the features. Parameter weight (dim), ones. */
FSDP_API struct fsdp_module *fsdp_rms_norm(struct fsdp_module *parent, const char *name, size_t dim,
                                           float eps);
/**
 * Multi-head self-attention: children wq, wk, wv, wo, each a bias-free Linear(dim, dim); heads divides dim.
 * dropout: of the attention probabilities, while training.
 */
FSDP_API struct fsdp_module *fsdp_attention(struct fsdp_module *parent, const char *name, size_t dim,
                                            size_t heads, bool causal, float dropout);

/* --- operations ------------------------------------------------------------------------------------------
 */

/** Token embedding plus a learned position embedding: tokens.weight[token] + positions.weight[place in
 * sequence]. `positions` may be NULL; it is an embedding of at least seq rows. */
FSDP_API struct fsdp_value *fsdp_embed(struct fsdp_module *tokens, struct fsdp_module *positions,
                                       struct fsdp_value *input);
/** Exact GELU: x * Phi(x). */
FSDP_API struct fsdp_value *fsdp_gelu(struct fsdp_value *x);
/** GELU by tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
FSDP_API struct fsdp_value *fsdp_gelu_tanh(struct fsdp_value *x);
/** While training, drop elements with probability p and scale the rest by 1 / (1 - p). The mask is a function
 * of (seed, place in the tree, global sample, element): the same at every world size. */
FSDP_API struct fsdp_value *fsdp_dropout(struct fsdp_value *x, float p);
/** a + b: the residual. */
FSDP_API struct fsdp_value *fsdp_add(struct fsdp_value *a, struct fsdp_value *b);
/** a + dropout(b): the residual of a branch with dropout at its end, in one pass. */
FSDP_API struct fsdp_value *fsdp_add_dropout(struct fsdp_value *a, struct fsdp_value *b, float p);
/** x in another dtype, float32 or bfloat16; x itself where it has it already. */
FSDP_API struct fsdp_value *fsdp_cast(struct fsdp_value *x, enum fsdp_dtype dtype);
/** softmax(q k^T / sqrt(features / heads)) v for each head; q, k, v of one shape. */
FSDP_API struct fsdp_value *fsdp_scaled_dot_product_attention(struct fsdp_value *q, struct fsdp_value *k,
                                                              struct fsdp_value *v, size_t heads, bool causal,
                                                              float dropout);
/** The same where one tensor holds q, k and v: a third of its features each, in this order. */
FSDP_API struct fsdp_value *fsdp_packed_attention(struct fsdp_value *qkv, size_t heads, bool causal,
                                                  float dropout);

FSDP_END_DECLS

#endif
