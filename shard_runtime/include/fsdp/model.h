/*
 * A model: a module tree made ready to run.
 *
 * fsdp_model_create() records the tree's forward, derives backward from it, and gives every buffer a place in
 * one arena. It allocates memory for this rank's rows of all parameters. The peak of memory is known from
 * then.
 *
 * Initial values are drawn later, by the first call that reads a value: a forward, an evaluation, a save,
 * fsdp_parameter_gather(), fsdp_module_unshard() or fsdp_model_state(). Values that were loaded or set before
 * that call are not drawn: fsdp_checkpoint_load(), fsdp_model_load_weights(), fsdp_set_full_state_dict() and
 * fsdp_parameter_set() right after fsdp_model_create() save the random numbers. A drawn value depends only on
 * the seed, the parameter's name and the element's index. All threads of the context take part in drawing.
 *
 * The tree must be sharded with fsdp_fully_shard() up to its root. The model borrows it, so the tree must
 * outlive the model. A context makes one model of a tree at a time: until it is destroyed, another one is
 * FSDP_ERR_ARG.
 *
 * Thread: the one that created the context makes all calls. "Collective" means that every rank of the model
 * must make the same call.
 */
#ifndef FSDP_MODEL_H
#define FSDP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/context.h>
#include <fsdp/module.h>

FSDP_BEGIN_DECLS

struct fsdp_model;

enum fsdp_gradient_sync {
    FSDP_SYNC_LAST,  /* micro-steps add up unsharded gradients; one reduce-scatter per group and step */
    FSDP_SYNC_EVERY, /* one reduce-scatter per group and micro-step: least memory */
};

/** Which backwards follow if several forwards keep their activations at the same time. */
enum fsdp_backwards {
    FSDP_BACKWARD_OF_SUM,  /* one backward of the sum of their losses: PyTorch's (a + b).backward() */
    FSDP_BACKWARD_OF_EACH, /* one backward each, in the order of the forwards: a.backward(), b.backward() */
};

/** Whether a second thread gathers and reduces while the first one computes. It changes no result. */
enum fsdp_overlap {
    FSDP_OVERLAP_AUTO, /* yes if there is a network between the ranks, or a CPU that no rank computes on */
    FSDP_OVERLAP_ON,
    FSDP_OVERLAP_OFF, /* one after the other, on one thread */
};

enum { FSDP_IGNORED_TARGET = -100 };

/** How the results of cheap operations (GELU, LayerNorm) reach backward. This changes no result. */
enum fsdp_recompute {
    FSDP_RECOMPUTE_CHEAP, /* backward computes the results again, from inputs that are kept anyway */
    /* all results are kept: about 1 % less time, up to a third more memory for activations */
    FSDP_RECOMPUTE_NOTHING,
};

struct fsdp_model_options {
    size_t batch; /* samples of this rank in one micro-step; 0: evaluation only */
    size_t seq;   /* tokens (or rows of features) in a sample */
    /* 0: the input is (batch, seq) int32 tokens. Otherwise it is (batch, seq, input_features) float32. */
    size_t input_features;
    uint64_t seed;    /* of initial weights, dropout and stochastic rounding */
    bool accumulates; /* a step may have more than one micro-step */
    /* How many forwards, each with its own activations, come before a backward; 0 means 1; at most 4096. */
    size_t forwards;
    enum fsdp_backwards backwards;
    enum fsdp_gradient_sync gradient_sync;
    enum fsdp_overlap overlap;
    enum fsdp_recompute recompute;
};

/**
 * Create a model: record, plan and allocate. Collective over the ranks of the model, which are those of the
 * root's mesh and of the tensor group. Every rank gives the same tree and options.
 *
 *   root     its forward returns logits (batch, seq, classes); the loss is their cross-entropy. Borrowed
 *            until the model is destroyed
 *   options  read while the call runs
 *
 *   FSDP_ERR_ARG    the tree does not compute such logits, or its root is no unit of sharding (the message
 *                   names the module). Or options are out of range, or a mesh of the tree belongs to another
 *                   context
 *   FSDP_ERR_NOMEM  the arena does not fit; the message says how large it is
 *   any             another rank failed alone (<fsdp/fsdp.h>)
 * After an error there is no model on any rank, and *out is NULL.
 *
 * A rank whose `root` is NULL or was not sharded has no mesh, so it reports its failure to the whole world.
 * If the model spans fewer ranks than the world, such a rank must end instead of calling this function. The
 * other ranks learn of the failure from its end.
 */
FSDP_API enum fsdp_status fsdp_model_create(struct fsdp_model **out, struct fsdp_context *context,
                                            struct fsdp_module *root,
                                            const struct fsdp_model_options *options, struct fsdp_err *err);

/** Free the model; its tree and context stay. NULL is a no-op. */
FSDP_API void fsdp_model_destroy(struct fsdp_model *model);

/* One step */

/** The input of this rank for one micro-step. Borrowed while the call runs. */
struct fsdp_batch {
    const void *input;      /* (batch, seq) int32 tokens, or (batch, seq, input_features) float32 */
    const int32_t *targets; /* (batch, seq) classes; FSDP_IGNORED_TARGET takes no part in the loss */
    uint64_t first_sample;  /* global index of this rank's first sample: dropout is keyed by it */
};

/**
 * The loss of the batches of one call, over all ranks; the same on every rank. The loss of a step of several
 * calls is the sum of their `sum` divided by the sum of their `n_targets`. Its gradients are scaled likewise.
 *
 * A call without targets adds nothing to such a step; the step's other calls, including the backward of that
 * forward, are made as usual. If no call of a step has targets, the step succeeds without gradients, and the
 * optimizer must not be called.
 */
struct fsdp_loss {
    double mean;        /* sum / n_targets, in nats; NaN when n_targets is 0 */
    double sum;         /* of the cross-entropies */
    uint64_t n_targets; /* those that are not FSDP_IGNORED_TARGET */
};

/**
 * Run forward and backward of `n_micro` micro-steps; collective. The gradients of the mean loss over all
 * ranks and micro-steps replace those of an earlier step.
 *
 *   micro  (n_micro) batches, borrowed while the call runs. In a model with several `forwards` each of these
 *          is a batch, and n_micro is a multiple of `forwards`
 *   *loss  the same on every rank
 *
 *   FSDP_ERR_ARG         a token or target is out of range (the message names it), or n_micro > 1 in a model
 *                        that does not accumulate
 *   FSDP_ERR_PEER        another rank is gone, or its GPU failed; the context is broken for good
 *   FSDP_ERR_DEVICE      a call to this rank's GPU failed; the context is broken for good
 *   FSDP_ERR_NOT_FINITE  only with hooks on final gradients. The loss is NaN or infinite and backward did not
 *                        run, or a hook returned this status (see fsdp_optimizer_step_group())
 *   any                  another rank failed alone, with this status; see fsdp_module_reset_iteration()
 * An error ends the step, even one of several calls: there are no gradients, and the next call begins a new
 * step. Only a call out of order, while a forward waits for its backward, changes nothing.
 *
 * Without such hooks, a loss or gradients that are not finite are no error of this call: clipping and the
 * optimizer report them. Gradients stay valid until the next forward begins, because its activations reuse
 * their memory, unless that forward goes on adding to them.
 */
FSDP_API enum fsdp_status fsdp_model_forward_backward(struct fsdp_model *model,
                                                      const struct fsdp_batch *micro, size_t n_micro,
                                                      struct fsdp_loss *loss, struct fsdp_err *err);

/**
 * Forward alone; collective. The calls of fsdp_model_options.forwards forwards come first, then those of
 * their backwards: one, or as many in the same order.
 *
 *   batch  borrowed, with what it points to, until the last backward, which reads the input too
 *   *loss  of this forward alone, over all ranks
 *
 * Between these calls the program may compute other things, including an evaluation, and call collectives of
 * its own, on every rank alike. The number of targets of the step is known only after the last forward. That
 * is why gradients are scaled when they are read.
 *   FSDP_ERR_ARG         a token or target is out of range (the message names it), or the call is out of
 *                        order
 *   FSDP_ERR_NOT_FINITE  as for fsdp_model_forward_backward(), in the last backward of a step
 * An error ends the step: the next call is a first forward again. A call out of order changes nothing.
 */
FSDP_API enum fsdp_status fsdp_model_forward(struct fsdp_model *model, const struct fsdp_batch *batch,
                                             struct fsdp_loss *loss, struct fsdp_err *err);

/** Backward of the forwards before it; collective. Errors are as for fsdp_model_forward(). */
FSDP_API enum fsdp_status fsdp_model_backward(struct fsdp_model *model, struct fsdp_err *err);

/**
 * Make one step out of several calls, as PyTorch's loop over micro-steps does. The model must accumulate.
 *
 * False makes the next calls of fsdp_model_forward_backward() parts of a step that goes on. True, the
 * default, makes the next call the last one of its step. With separate halves, set it before the first
 * forward; it then holds until the last backward of these forwards has run.
 *
 * The gradients of all calls add up to those of the mean over all of their targets. They can be clipped and
 * used by the optimizer after the last call. fsdp_model_options.gradient_sync decides what is reduced
 * earlier, as in a step of one call.
 */
FSDP_API void fsdp_module_set_is_last_backward(struct fsdp_model *model, bool is_last_backward);

/**
 * Compute the global L2 norm of all gradients, without unsharding them, and clip them; collective.
 *
 *   max_norm  if the norm exceeds it, gradients count as multiplied by max_norm / (norm + 1e-6) from now on.
 *             The factor is stored next to the gradients, and each reader applies it. 0 or infinity: only
 *             measure
 *   *norm     the norm before clipping
 *
 * It costs one all-reduce of two numbers for each mesh of the tree, and one more for a tensor group. Replicas
 * add one of a single number, which reports a rank that failed.
 *   FSDP_ERR_ARG         there are no gradients: no backward ran, or the step failed or had no targets
 *   FSDP_ERR_NOT_FINITE  a gradient is NaN or infinite on any rank (the message names the first such
 *                        parameter), or the norm is. *norm is what was measured, the same on every rank;
 *                        nothing is clipped
 * After any other error *norm and the gradients are unchanged.
 */
FSDP_API enum fsdp_status fsdp_clip_grad_norm(struct fsdp_model *model, double max_norm, double *norm,
                                              struct fsdp_err *err);

/**
 * fsdp_clip_grad_norm() with the norm of order `norm_type`: at least 1, or INFINITY for the largest absolute
 * value.
 */
FSDP_API enum fsdp_status fsdp_clip_grad_norm_of(struct fsdp_model *model, double max_norm, double norm_type,
                                                 double *norm, struct fsdp_err *err);

/**
 * Recover after a step that failed without breaking a rank; collective. It waits for what is still queued,
 * and drops gradients and clipping factor. The next step begins as if the failed one had not been.
 *
 * How the ranks come to call it:
 *   1. Rank A fails alone in a step; for instance, one of its hooks finds no memory. It stops computing, but
 *      still takes part in the step's collectives until the end.
 *   2. After the last collective, the call on every other rank returns A's status. The message begins with
 *      "rank A: ".
 *   3. All ranks call this function.
 * A rank that could not get its data passes a batch without input: all ranks then refuse the batch.
 * A context broken by FSDP_ERR_PEER or FSDP_ERR_DEVICE stays broken.
 *
 *   FSDP_ERR_UNSUPPORTED  in the failed step, hooks on final gradients (an optimizer in backward) ran on some
 *                         ranks with wrong data from the failed rank. On that rank they did not run. What
 *                         they updated is now wrong on every rank, and this call cannot undo it: load weights
 *                         and optimizer state from a checkpoint. Process groups, plan and memory are sound,
 *                         so the run can continue from there
 */
FSDP_API enum fsdp_status fsdp_module_reset_iteration(struct fsdp_model *model, struct fsdp_err *err);

/* Evaluation */

/**
 * Prepare to evaluate inputs of (batch, seq): forward only, without dropout; collective. Parameters are
 * shared with training; the evaluation has an arena of its own. A later call with other sizes replaces the
 * earlier one. After an error no rank has an evaluation.
 */
FSDP_API enum fsdp_status fsdp_model_prepare_evaluation(struct fsdp_model *model, size_t batch, size_t seq,
                                                        struct fsdp_err *err);

/**
 * Compute the logits of `input`; collective, with an input of its own on every rank.
 *
 *   input    as in struct fsdp_batch. A rank that has none passes NULL; all ranks then return FSDP_ERR_ARG
 *   targets  (batch, seq) classes; NULL: no loss
 *   *logits  (batch, seq, classes) float32, owned by the model, valid until the next evaluation
 *   *loss    over the targets of all ranks
 */
FSDP_API enum fsdp_status fsdp_model_evaluate(struct fsdp_model *model, const void *input,
                                              const int32_t *targets, const float **logits,
                                              struct fsdp_loss *loss, struct fsdp_err *err);

/* Parameters */

enum fsdp_which { FSDP_VALUE, FSDP_GRADIENT };

struct fsdp_parameter_info {
    const char *name; /* "layers.0.attention.wq.weight"; owned by the tree */
    int n_dims;
    size_t shape[FSDP_MAX_DIMS]; /* of the whole parameter */
    size_t n_elems;              /* of the whole parameter */
    int shard_dim;               /* the dimension it is cut along */
    /*
     * The rows of this rank's shard along shard_dim; if the parameter is split, counted within this rank's
     * part.
     */
    size_t first_row, n_rows;
    /*
     * Tensor parallelism: this rank has number `split` of n_splits equal parts along split_dim. n_splits 1:
     * the parameter is not split.
     */
    int split_dim, n_splits, split;
    bool everywhere;    /* ignored by sharding: every rank holds all of it */
    bool requires_grad; /* false: frozen */
    /*
     * false: the optimizer does not update the parameter, because it is frozen or backward does not reach it
     */
    bool has_gradient;
    int group; /* the number of its unit of sharding, in order of first use */
};

/** Return the number of parameters of the model. */
FSDP_API size_t fsdp_model_parameter_count(const struct fsdp_model *model);

/** Describe parameter `index`, in the tree's order. FSDP_ERR_ARG: there is no such index. */
FSDP_API enum fsdp_status fsdp_model_parameter(const struct fsdp_model *model, size_t index,
                                               struct fsdp_parameter_info *info, struct fsdp_err *err);

/**
 * Gather all of parameter `name`, or of its gradient, on every rank; collective.
 *
 *   which    FSDP_VALUE or FSDP_GRADIENT
 *   out      (n_elems) float32 in host memory; n_elems is that of the whole parameter
 *
 *   FSDP_ERR_ARG  no such parameter or number of elements, or there is no gradient now. There is none between
 *                 a forward and its backward, and between micro-steps of a step that only the last one
 *                 reduces. After a rank could not make a new plan for a step, no rank has one
 * All ranks check and allocate everything before the first byte is sent.
 */
FSDP_API enum fsdp_status fsdp_parameter_gather(struct fsdp_model *model, const char *name,
                                                enum fsdp_which which, float *out, size_t n_elems,
                                                struct fsdp_err *err);

/**
 * Replace the value of parameter `name`. Each rank takes its own rows of `values`, which holds the whole
 * parameter (n_elems float32). Not collective.
 */
FSDP_API enum fsdp_status fsdp_parameter_set(struct fsdp_model *model, const char *name, const float *values,
                                             size_t n_elems, struct fsdp_err *err);

/**
 * One tensor of the model or optimizer, and the part of it that this rank holds.
 *
 * The part is rows first_row ... first_row + n_rows - 1 of dimension shard_dim; if tensor parallelism splits
 * the parameter, rows are counted within this rank's part of it. In the whole tensor the same part is the box
 * of `sizes` at `offsets`. `data` is the memory in use, contiguous, as a tensor of that shape: reading it
 * saves, writing it loads.
 */
struct fsdp_tensor_shard {
    const char *name;
    enum fsdp_dtype dtype;
    int n_dims;
    size_t shape[FSDP_MAX_DIMS]; /* of the whole tensor */
    int shard_dim;
    bool everywhere; /* every rank holds all rows: a parameter that sharding ignores */
    size_t first_row, n_rows;
    size_t offsets[FSDP_MAX_DIMS], sizes[FSDP_MAX_DIMS];
    bool elsewhere; /* another rank holds the same part of the tensor, and that rank saves it */
    void *data;     /* not to be read or written if n_rows is 0 */
};

/**
 * Describe the model's tensors in order: `out` has room for fsdp_model_parameter_count() of them. Values that
 * were neither loaded nor set are drawn first.
 */
FSDP_API void fsdp_model_state(struct fsdp_model *model, struct fsdp_tensor_shard *out);

/* Size and plan */

/**
 * Bytes of this rank's memory, known when the model is created. The classes that share the arena have their
 * peaks here.
 */
struct fsdp_memory {
    size_t parameters, gradients; /* shards, padded to equal rows */
    size_t host_parameters; /* the part of `parameters` that is in host memory because a unit offloads it */
    size_t host_gradients;  /* the part of `gradients` that is in host memory */
    size_t gather;          /* all-gather buffers and whole parameters */
    size_t reduce;          /* whole gradients and reduce-scatter buffers */
    size_t activations;     /* what forward keeps, and gradients of activations */
    size_t scratch;         /* working memory of products and norms */
    /*
     * Allocated for the four classes above together, in addition to the gradients. It is less than their sum:
     * they do not peak at the same time, and until gradients are written they use the gradients' memory, too.
     */
    size_t arena;
    size_t evaluation; /* the arena of the prepared evaluation, in addition; 0: none is prepared */
};

/** Fill in *memory for this rank. */
FSDP_API void fsdp_model_memory(const struct fsdp_model *model, struct fsdp_memory *memory);

/** Return the plan of a micro-step as text, one entry a line, for the caller to free(). NULL: no memory. */
FSDP_API char *fsdp_model_plan_text(const struct fsdp_model *model);

/** Return the context that the model was created in. */
FSDP_API struct fsdp_context *fsdp_model_context(const struct fsdp_model *model);

FSDP_END_DECLS

#endif
