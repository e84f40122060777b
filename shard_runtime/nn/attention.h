/*
 * What the two files of attention share. attention.c records the operation and chooses between two ways of
 * computing it. The back end does it without its (seq, seq) matrices, or attention_whole.c does it with them
 * stored.
 */
#ifndef NN_ATTENTION_H
#define NN_ATTENTION_H

#include "shard_runtime/nn/nn.h"

enum { ATTENTION_QUERY, ATTENTION_KEY, ATTENTION_VALUE, ATTENTION_PARTS };

/**
 * Where q, k and v are, and where their gradients go: in three inputs, or in the thirds of the rows of one.
 */
struct attention_parts {
    const char *of[ATTENTION_PARTS];
    char *d[ATTENTION_PARTS]; /* NULL: not wanted */
};
/** Returns the parts of this run of `op`. */
struct attention_parts attention_find_parts(const struct nn_run *run, const struct graph_op *op);

/** Returns the shape that `op` computes. */
struct attention_desc attention_describe(const struct graph_op *op);

/** Would attention that stores its (seq, seq) matrices compute their products in bfloat16? */
bool attention_whole_takes_bf16(const struct nn_kernels *kernels, const struct graph_op *op);
/** The functions of the operation's kind, for attention that stores its matrices. */
enum fsdp_status attention_whole_prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                         struct fsdp_err *err);
enum fsdp_status attention_whole_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
enum fsdp_status attention_whole_backward(struct nn_run *run, const struct graph_op *op,
                                          struct fsdp_err *err);

#endif
