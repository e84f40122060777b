/*
 * The two ways of attention, inside nn/: attention.c chooses, attention_whole.c is the one that stores the matrices.
 */
#ifndef NN_ATTENTION_H
#define NN_ATTENTION_H

#include "shard_runtime/nn/nn.h"

enum { ATTENTION_QUERY, ATTENTION_KEY, ATTENTION_VALUE, ATTENTION_PARTS };

/* Where q, k and v lie, and where their gradients go: three inputs, or the thirds of the rows of one. */
struct attention_parts {
    const char *of[ATTENTION_PARTS];
    char *d[ATTENTION_PARTS]; /* NULL: not wanted */
};
struct attention_parts attention_find_parts(const struct nn_run *run, const struct graph_op *op);

struct attention_desc attention_describe(const struct graph_op *op);

/* Would it multiply the matrices in bfloat16? */
bool attention_whole_takes_bf16(const struct nn_kernels *kernels, const struct graph_op *op);
enum fsdp_status attention_whole_prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                         struct fsdp_err *err);
enum fsdp_status attention_whole_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
enum fsdp_status attention_whole_backward(struct nn_run *run, const struct graph_op *op,
                                          struct fsdp_err *err);

#endif
