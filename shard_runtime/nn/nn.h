/*
 * How operations run. Each kind of operation is one file: what the plan must know of it (struct graph_kind),
 * how it is made ready, forward and backward through the numerics table. Every pointer it is given is already
 * the right one: the plan chose the buffers, the engine resolved them.
 *
 * What dtype is what. A value's, and its gradient's, is value->dtype: op->inputs[i]->dtype, op->output->dtype.
 * Parameters come in op->param_dtype, all of them. The gradient of a parameter goes into a buffer of
 * run->d_param_dtype[i]: what the group accumulates in, float32 or param_dtype. What an operation saves for its
 * backward is its own affair. A kind that says takes_bf16 is run on all of this as it lies (its prepare() reads the
 * same fields), and so is an operation whose prepare() set takes_bf16; any other is given float32 copies by nn_forward() and nn_backward() and never sees bfloat16.
 */
#ifndef NN_NN_H
#define NN_NN_H

#include <stdbool.h>
#include <stdint.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"
#include "shard_runtime/plan/graph.h"

/** One run of one operation. In backward, input[i] is there only where the kind keeps it. */
struct nn_run {
    struct numerics *numerics;
    struct device *device;
    struct device_stream *stream;
    uint64_t seed, first_sample; /* dropout: the job's, and the global index of sample 0 */
    struct fsdp_comm *tensor;    /* the tensor group of op->attrs.tensor, where it has one */

    const void *input[GRAPH_MAX_INPUTS];
    const void *params[GRAPH_MAX_PARAMS];
    void *saved[GRAPH_MAX_SAVED];
    void *scratch;
    void *output; /* in backward only where the kind keeps it */

    const void
        *d_output; /* from here on: backward only; of the model's result an operation may write over it */
    void *d_input[GRAPH_MAX_INPUTS]; /* NULL: not wanted */
    bool add_d_input[GRAPH_MAX_INPUTS];
    void *d_param[GRAPH_MAX_PARAMS]; /* NULL: not wanted */
    bool add_d_param[GRAPH_MAX_PARAMS];
    bool bias_before; /* that of params[1] may be there already (nn_backward_fused) */
    enum fsdp_dtype d_param_dtype[GRAPH_MAX_PARAMS];
};

/** Run one operation: its kind's function, on float32 copies where it must be. */
enum fsdp_status nn_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
enum fsdp_status nn_backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);

/** Can `first` and `second`, behind it, be one pass? Both are prepared; it may make another product for `first`. */
bool nn_fuses(struct nn_kernels *kernels, struct graph_op *first, const struct graph_op *second);
/** Both forwards of two that fuse. */
enum fsdp_status nn_forward_fused(struct nn_run *first_run, const struct graph_op *first,
                                  struct nn_run *second_run, const struct graph_op *second,
                                  struct fsdp_err *err);

/** Can the backward of `op` be one pass with that of `gelu`, which gives its input, and give the gradient of the bias of `before`,
 * which gives gelu's? Sets what op says of that. `before` may be NULL. */
void nn_fuse_backward(struct nn_kernels *kernels, struct graph_op *op, const struct graph_op *gelu,
                      const struct graph_op *before);
/** Both backwards, gelu's of a gradient that nothing else adds to; with `before`, whose backward is run later with bias_before, of
 * its own the gradient of the bias where that is written, not added. */
enum fsdp_status nn_backward_fused(struct nn_run *run, const struct graph_op *op, struct nn_run *gelu_run,
                                   const struct graph_op *gelu, struct nn_run *before_run,
                                   const struct graph_op *before, struct fsdp_err *err);

/* What fuses, for fused.c: a residual sum, a + b or a + dropout(b), and its norm, with the bits of one after the other; */
bool nn_is_sum(const struct graph_op *op);
bool nn_norm_takes_sum(const struct nn_kernels *kernels, const struct graph_op *sum,
                       const struct graph_op *norm);
void nn_sum_and_norm(struct nn_run *sum_run, const struct graph_op *sum, struct nn_run *norm_run,
                     const struct graph_op *norm);
/* and a linear that leaves what goes into the GELU in its output, and what comes out in `activated`. The run is refused as
 * numerics_ops.matmul_run_beside says. */
bool nn_is_gelu_tanh(const struct graph_op *op);
bool nn_linear_takes_gelu(struct nn_kernels *kernels, struct graph_op *op);
enum fsdp_status nn_linear_and_gelu(struct nn_run *run, const struct graph_op *op, void *activated,
                                    struct fsdp_err *err);

/* and the way back, whose run is linear.c's: the product that gives the GELU's gradient, the GELU's backward behind it. */
bool nn_linear_goes_back_through_gelu(struct nn_kernels *kernels, struct graph_op *op);
bool nn_linear_leaves_bias(const struct graph_op *op, const struct graph_op *before);

/** Room for the copies in the scratch of an operation whose own needs are known. Part of nn_prepare(). */
void nn_plan_copies(struct graph_op *op, bool training);

/** Prepared products, each made once however many operations use its shape. */
struct nn_kernels {
    struct numerics *numerics;
    struct nn_product *products;
    size_t n_products, room;
    struct nn_attention *attentions;
    size_t n_attentions, attentions_room;
};

void nn_kernels_init(struct nn_kernels *kernels, struct numerics *numerics);
void nn_kernels_fini(struct nn_kernels *kernels);

/** The product that `desc` describes; *scratch_bytes grows to what it needs. Owned by `kernels`. */
enum fsdp_status nn_product(struct nn_kernels *kernels, const struct matmul_desc *desc, struct matmul **out,
                            size_t *scratch_bytes, struct fsdp_err *err);

/** The same for attention without its matrices: op->attention, and scratch of both passes. */
enum fsdp_status nn_fused_attention(struct nn_kernels *kernels, const struct fused_attention_desc *desc,
                                    struct graph_op *op, struct fsdp_err *err);

/** Make every operation of a recording ready; their bytes of memory are known afterwards. */
enum fsdp_status nn_prepare(struct nn_kernels *kernels, const struct graph *graph, struct fsdp_err *err);

/** All that `op` is given and gives is bfloat16, and the back end has operations on it. */
static inline bool nn_is_bf16(const struct nn_kernels *kernels, const struct graph_op *op)
{
    bool all = kernels->numerics->ops->bf16 != NULL && op->output->dtype == FSDP_BF16;

    for (int i = 0; i < op->n_inputs; i++)
        all = all && op->inputs[i]->dtype == FSDP_BF16;
    return all && (op->n_params == 0 || op->param_dtype == FSDP_BF16);
}

/** Dropout number one of `op` in this run; rows_per_sample rows belong to a sample. */
struct dropout nn_dropout(const struct nn_run *run, const struct graph_op *op, size_t rows_per_sample);

/** Is `module` one that fsdp_linear() made? */
bool nn_is_linear(const struct fsdp_module *module);

/** `x`, whose gradient is all-reduced over the tensor group of `module`; one operation for all that use it so in a unit. */
struct fsdp_value *nn_tensor_copy(struct fsdp_value *x, const struct fsdp_module *module);
/** `x` all-reduced over the tensor group of `module`. */
struct fsdp_value *nn_tensor_reduce(struct fsdp_value *x, const struct fsdp_module *module);

/** Rows of a value: batch * seq. */
static inline size_t nn_rows(const struct fsdp_value *value)
{
    return value->batch * value->seq;
}

/** For a recording: false, with the reason noted, when a value is missing or no (batch, seq, features)
 * tensor. */
bool nn_is_tensor(const struct fsdp_value *value, const char *operation);
/** The same for two values that must have one shape. */
bool nn_are_alike(const struct fsdp_value *a, const struct fsdp_value *b, const char *operation);

/** Rows of the smallest embedding that is given the input, or 0 without one: what every token must be below.
 */
size_t nn_input_rows(const struct graph *graph);

#endif
