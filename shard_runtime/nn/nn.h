/*
 * The operations of a model. Each kind of operation is one file. It has what the plan must know of it (struct
 * graph_kind), how it is prepared, and its forward and backward through the numerics table. The plan chose
 * every buffer and the engine resolved the pointers, so an operation only computes.
 *
 * Which dtype is what:
 *   - A value and its gradient have value->dtype: op->inputs[i]->dtype and op->output->dtype.
 *   - All parameters of an operation have op->param_dtype.
 *   - The gradient of parameter i goes into a buffer of run->d_param_dtype[i]: what the group accumulates in,
 *     float32 or param_dtype.
 *   - What an operation saves for its backward has a dtype of its own choice.
 *
 * An operation whose kind sets takes_bf16, or whose prepare() sets op->takes_bf16, runs on these dtypes as
 * they are. For every other operation nn_forward() and nn_backward() make float32 copies, so that it never
 * sees bfloat16.
 */
#ifndef NN_NN_H
#define NN_NN_H

#include <stdbool.h>
#include <stdint.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"
#include "shard_runtime/plan/graph.h"

/** One run of one operation. In backward, input[i] is valid only where the kind keeps that input. */
struct nn_run {
    struct numerics *numerics;
    struct device *device;
    struct device_stream *stream;
    uint64_t seed, first_sample; /* for dropout: the seed of the job, and the global index of sample 0 */
    struct fsdp_comm *tensor;    /* the tensor group of op->attrs.tensor, or NULL */

    const void *input[GRAPH_MAX_INPUTS];
    const void *params[GRAPH_MAX_PARAMS];
    void *saved[GRAPH_MAX_SAVED];
    void *scratch;
    void *output; /* valid in backward only if the kind of operation keeps its output */

    /* From here on: backward only. */
    const void *d_output;            /* the gradient of `output`; the last operation may overwrite it */
    void *d_input[GRAPH_MAX_INPUTS]; /* NULL: not wanted */
    bool add_d_input[GRAPH_MAX_INPUTS];
    void *d_param[GRAPH_MAX_PARAMS]; /* NULL: not wanted */
    bool add_d_param[GRAPH_MAX_PARAMS];
    bool bias_before; /* nn_backward_fused() may have written the gradient of params[1] already */
    enum fsdp_dtype d_param_dtype[GRAPH_MAX_PARAMS];
};

/**
 * Run one operation forward or backward, on float32 copies if it does not take bfloat16. Work is queued on
 * run->stream. After an error the outputs are undefined.
 */
enum fsdp_status nn_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
enum fsdp_status nn_backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);

/**
 * Returns true if the forwards of `first` and of `second`, the next operation, can run in one pass. Both are
 * prepared. It may prepare one more product for `first`.
 */
bool nn_fuses(struct nn_kernels *kernels, struct graph_op *first, const struct graph_op *second);
/** Run the forwards of two operations for which nn_fuses() is true. */
enum fsdp_status nn_forward_fused(struct nn_run *first_run, const struct graph_op *first,
                                  struct nn_run *second_run, const struct graph_op *second,
                                  struct fsdp_err *err);

/**
 * Decide whether the backward of `op` can run in one pass with that of `gelu`, which produces its input: sets
 * op->fuses_backward. Also decides whether that pass can write the gradient of the bias of `before`, the
 * operation that produces gelu's input: sets op->leaves_bias. `before` may be NULL.
 */
void nn_fuse_backward(struct nn_kernels *kernels, struct graph_op *op, const struct graph_op *gelu,
                      const struct graph_op *before);
/**
 * Runs the backward of `op` and of the GELU that produced its input, in one pass. Requires that no other
 * operation adds to the gradient of the GELU's output. If `before` is given (the linear that feeds the GELU),
 * it also writes the gradient of its bias, unless that gradient must be added. The later backward of `before`
 * must then have bias_before set.
 */
enum fsdp_status nn_backward_fused(struct nn_run *run, const struct graph_op *op, struct nn_run *gelu_run,
                                   const struct graph_op *gelu, struct nn_run *before_run,
                                   const struct graph_op *before, struct fsdp_err *err);

/*
 * The pairs that fuse, for fused.c.
 *
 * A residual sum (a + b, or a + dropout(b)) and the norm of it. The bits are those of the two operations one
 * after the other.
 */
/** Is `op` a residual sum? */
bool nn_is_sum(const struct graph_op *op);
/** Is `norm` a norm of the residual sum `sum`, in the same dtype? */
bool nn_norm_takes_sum(const struct graph_op *sum, const struct graph_op *norm);
/** Run the forwards of both. */
void nn_sum_and_norm(struct nn_run *sum_run, const struct graph_op *sum, struct nn_run *norm_run,
                     const struct graph_op *norm);

/* A linear and the GELU by tanh of its output. */
/** Is `op` a GELU by tanh? */
bool nn_is_gelu_tanh(const struct graph_op *op);
/** Can the product of the linear `op` apply the GELU as well? Prepares that product. */
bool nn_linear_takes_gelu(struct nn_kernels *kernels, struct graph_op *op);
/**
 * The forward of a linear and of its GELU: the input of the GELU goes into run->output, its result into
 * `activated`. FSDP_ERR_UNSUPPORTED: no such product for buffers at these addresses
 * (numerics_ops.matmul_run_beside); nothing was queued.
 */
enum fsdp_status nn_linear_and_gelu(struct nn_run *run, const struct graph_op *op, void *activated,
                                    struct fsdp_err *err);

/* A linear and the GELU by tanh before it, backward. */
/** Can the product that gives the input gradient of `op` continue through the GELU? Prepares that product. */
bool nn_linear_goes_back_through_gelu(struct nn_kernels *kernels, struct graph_op *op);
/** Can the product of nn_linear_goes_back_through_gelu() also sum the gradient of the bias of `before`? */
bool nn_linear_leaves_bias(const struct graph_op *op, const struct graph_op *before);

/**
 * Adds room for float32 copies to the scratch memory of an operation. Everything else of the operation must
 * be prepared already. Part of nn_prepare().
 */
void nn_plan_copies(struct graph_op *op, bool training);

/** Products and attentions that are prepared, each made once for all operations of its shape. */
struct nn_kernels {
    struct numerics *numerics;
    struct nn_product *products;
    size_t n_products, room;
    struct nn_attention *attentions;
    size_t n_attentions, attentions_room;
};

/** Begin with none. `numerics` must outlive them. */
void nn_kernels_init(struct nn_kernels *kernels, struct numerics *numerics);
/** Destroy all of them. */
void nn_kernels_fini(struct nn_kernels *kernels);

/**
 * Find or make the product that `desc` describes. *out belongs to `kernels`. *scratch_bytes grows to what the
 * product needs, if it was less. Errors are those of numerics_ops.matmul_create; *out is then NULL.
 */
enum fsdp_status nn_product(struct nn_kernels *kernels, const struct matmul_desc *desc, struct matmul **out,
                            size_t *scratch_bytes, struct fsdp_err *err);

/**
 * Find or make the kernel of attention without stored matrices that `desc` describes. Sets op->attention, and
 * the scratch of forward and backward of `op`.
 */
enum fsdp_status nn_fused_attention(struct nn_kernels *kernels, const struct fused_attention_desc *desc,
                                    struct graph_op *op, struct fsdp_err *err);

/**
 * Prepare every operation of a recording. Afterwards the bytes that each saves and needs as scratch are
 * known.
 */
enum fsdp_status nn_prepare(struct nn_kernels *kernels, const struct graph *graph, struct fsdp_err *err);

/** A prepare() for kinds that only need to know whether they run on bfloat16. It sets op->takes_bf16. */
enum fsdp_status nn_prepare_bf16(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                 struct fsdp_err *err);

/** Queue a product without a bias on the run's stream. Errors are those of numerics_ops.matmul_run. */
enum fsdp_status nn_multiply(const struct nn_run *run, struct matmul *product, const void *a, const void *b,
                             void *c, void *scratch, struct fsdp_err *err);

/** Does the back end take bfloat16, and are all inputs, all parameters and the output of `op` bfloat16? */
static inline bool nn_is_bf16(const struct nn_kernels *kernels, const struct graph_op *op)
{
    bool all = kernels->numerics->ops->takes_bf16 && op->output->dtype == FSDP_BF16;

    for (int i = 0; i < op->n_inputs; i++)
        all = all && op->inputs[i]->dtype == FSDP_BF16;
    return all && (op->n_params == 0 || op->param_dtype == FSDP_BF16);
}

/**
 * The dtype in which `op` runs: FSDP_BF16 where it takes bfloat16 as it is, else FSDP_F32 (on copies if need
 * be).
 */
static inline enum fsdp_dtype nn_dtype(const struct graph_op *op)
{
    return op->takes_bf16 ? FSDP_BF16 : FSDP_F32;
}

/** The dropout of `op` in this run. rows_per_sample: how many rows of the mask belong to one sample. */
struct dropout nn_dropout(const struct nn_run *run, const struct graph_op *op, size_t rows_per_sample);

/** out (+)= dropout(x), both float32 and of the shape of op's output. */
void nn_drop(struct nn_run *run, const struct graph_op *op, const float *x, float *out, bool accumulate);

/** Is `module` one that fsdp_linear() made? */
bool nn_is_linear(const struct fsdp_module *module);

/**
 * Returns `x` as it is; in backward its gradient is all-reduced over the tensor group of `module`. All
 * callers in one unit that ask for the same x and group share one operation.
 */
struct fsdp_value *nn_tensor_copy(struct fsdp_value *x, const struct fsdp_module *module);
/** Returns `x` all-reduced over the tensor group of `module`. */
struct fsdp_value *nn_tensor_reduce(struct fsdp_value *x, const struct fsdp_module *module);

/** Rows of a value: batch * seq. */
static inline size_t nn_rows(const struct fsdp_value *value)
{
    return value->batch * value->seq;
}

/*
 * Functions for recording a model. Each returns false, or NULL, if an argument is wrong, and stores the
 * reason in the graph. If an argument is NULL, an earlier call has stored a reason already. `operation` is
 * the name of the caller, for the message.
 */
/** Is it a (batch, seq, features) tensor, and not tokens? */
bool nn_is_tensor(const struct fsdp_value *value, const char *operation);
/** Are both tensors of one shape? */
bool nn_are_alike(const struct fsdp_value *a, const struct fsdp_value *b, const char *operation);
/** Can `p`, the argument called `name`, be a probability of dropout: in [0, 1)? */
bool nn_is_rate(struct graph *graph, float p, const char *operation, const char *name);
/**
 * Record an operation without parameters on x, and on `other` unless it is NULL. Its output has the features
 * of x.
 */
struct graph_op *nn_append(const struct graph_kind *kind, struct fsdp_value *x, struct fsdp_value *other);

/**
 * Returns the number of rows of the smallest embedding that reads the model's input; 0: there is none. Every
 * token must be below it.
 */
size_t nn_input_rows(const struct graph *graph);

#endif
