/*
 * The two ways of attention, inside nn/: attention.c chooses, attention_whole.c is the one that stores the matrices.
 */
#ifndef NN_ATTENTION_H
#define NN_ATTENTION_H

#include "shard_runtime/nn/nn.h"

enum { ATTENTION_QUERY, ATTENTION_KEY, ATTENTION_VALUE };

struct attention_desc attention_describe(const struct graph_op *op);

enum fsdp_status attention_whole_prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                         struct fsdp_err *err);
enum fsdp_status attention_whole_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
enum fsdp_status attention_whole_backward(struct nn_run *run, const struct graph_op *op,
                                          struct fsdp_err *err);

#endif
