/*
 * A module tree made ready to run: its forward was recorded, backward derived, every buffer given its place
 * in one arena, and memory allocated for this rank's rows of all parameters. The peak of memory is known when it is
 * created.
 *
 * Initial values are drawn later, by the first call that reads a value: a forward, an evaluation, a save,
 * fsdp_parameter_gather(), fsdp_module_unshard(), fsdp_model_state(). What was loaded or set before that call is not drawn at
 * all: fsdp_checkpoint_load(), fsdp_model_load_weights(), fsdp_set_full_state_dict() or fsdp_parameter_set() right after
 * fsdp_model_create() costs no random numbers. Parameters that none of them filled are drawn. A value depends on the seed, the
 * parameter's name and the element's index alone. All threads of the context draw.
 *
 * The tree, once sharded with fsdp_fully_shard() up to its root, is borrowed and must outlive the model. A context makes one
 * model of it at a time: another is FSDP_ERR_ARG until the first was destroyed.
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
    FSDP_SYNC_LAST,  /* gradients of the micro-steps add up unsharded; one reduce-scatter a group and step */
    FSDP_SYNC_EVERY, /* reduce-scatter in every micro-step: least memory */
};

/** What becomes of several forwards whose activations are held at once. */
enum fsdp_backwards {
    FSDP_BACKWARD_OF_SUM, /* one backward, of the sum of their losses: what PyTorch's (a + b).backward() does */
    FSDP_BACKWARD_OF_EACH, /* a backward of each, in the order of the forwards: a.backward(), b.backward() */
};

enum fsdp_overlap {
    FSDP_OVERLAP_AUTO, /* with a network between the ranks, or a CPU that no rank computes on */
    FSDP_OVERLAP_ON,   /* a second thread gathers and reduces while the first one computes */
    FSDP_OVERLAP_OFF,  /* one after the other, on one thread */
};

enum { FSDP_IGNORED_TARGET = -100 };

/** What cheap operations (GELU, LayerNorm) gave, between forward and backward. Changes no bit. */
enum fsdp_recompute {
    FSDP_RECOMPUTE_CHEAP,   /* made again where backward reads it: their inputs are kept anyway */
    FSDP_RECOMPUTE_NOTHING, /* kept: about 1 % less time, up to a third more memory for activations */
};

struct fsdp_model_options {
    size_t batch;          /* samples of this rank in one micro-step; 0: no training, evaluation only */
    size_t seq;            /* tokens (or rows of features) of a sample */
    size_t input_features; /* 0: the input is (batch, seq) int32 tokens; else (batch, seq, input_features)
                              float32 */
    uint64_t seed;         /* initial weights, dropout, stochastic rounding */
    bool accumulates;      /* a step may have more than one micro-step */
    size_t forwards; /* that come before a backward, each with its activations; 0 counts as 1; at most 4096 */
    enum fsdp_backwards backwards;
    enum fsdp_gradient_sync gradient_sync;
    enum fsdp_overlap overlap; /* changes no result */
    enum fsdp_recompute recompute;
};

/**
 * Build, plan, allocate. The root's forward gives logits (batch, seq, classes); the loss is their
 * cross-entropy. Every rank calls it with the same tree and options.
 *   FSDP_ERR_ARG     a tree that does not compute what it should, or whose root is no unit of sharding: the message
 *                    names the module; options out of range; or a mesh of the tree that is of another context
 *   FSDP_ERR_NOMEM   the arena does not fit; the message says how much it is
 *   any              another rank failed alone (<fsdp/fsdp.h>): there is no model on any rank
 * Collective over the ranks of the model, which are those of the root's mesh and of the tensor group. A rank whose `root` is
 * NULL or was not sharded has no mesh and reports its failure to the whole world. If the model spans fewer ranks, such a rank
 * must end instead of calling this function; the others are told by that.
 */
FSDP_API enum fsdp_status fsdp_model_create(struct fsdp_model **out, struct fsdp_context *context,
                                            struct fsdp_module *root,
                                            const struct fsdp_model_options *options, struct fsdp_err *err);
FSDP_API void fsdp_model_destroy(struct fsdp_model *model);

/* --- one step --------------------------------------------------------------------------------------------
 */

/** What this rank computes in one micro-step. Borrowed while the call runs. */
struct fsdp_batch {
    const void *input;      /* (batch, seq) int32 tokens, or (batch, seq, input_features) float32 */
    const int32_t *targets; /* (batch, seq) classes; FSDP_IGNORED_TARGET takes no part in the loss */
    uint64_t first_sample;  /* global index of this rank's first sample: dropout is keyed by it */
};

/**
 * The loss of the batches of one call, over all ranks; the same on every rank. The loss of a step of several
 * calls is the sum of their `sum` divided by the sum of their `n_targets`: so are its gradients.
 *
 * A call without targets adds nothing to such a step, and its other calls (the backward of a forward too) are
 * made as usual. A step that has no targets in any call leaves no gradients: it succeeds, and the optimizer
 * is not to be called.
 */
struct fsdp_loss {
    double mean;        /* sum / n_targets, in nats; NaN when n_targets is 0 */
    double sum;         /* of the cross-entropies */
    uint64_t n_targets; /* those that are not FSDP_IGNORED_TARGET */
};

/**
 * Forward and backward of `n_micro` micro-steps; collective. Gradients of the mean loss over all ranks and
 * micro-steps replace what an earlier step left. *loss is the same on every rank. In a model of several `forwards`
 * each of these is a batch: n_micro is a multiple of them.
 *   FSDP_ERR_ARG   a token or target out of range (named), or n_micro > 1 in a model that does not accumulate
 *   FSDP_ERR_PEER  another rank is gone, or its GPU failed
 *   FSDP_ERR_DEVICE  a call of this rank's GPU failed
 *   any            another rank failed alone, and said that; see fsdp_module_reset_iteration()
 *   FSDP_ERR_NOT_FINITE  only with hooks on final gradients: the loss is NaN or infinite, and backward was
 *                  not run; or a hook returned it (see fsdp_optimizer_step_group())
 * Gradients stay until the next forward begins, whose activations take their place in memory, unless it goes
 * on adding to them. A loss or gradients that are not finite are no error of this call otherwise: clipping
 * and the optimizer report them.
 *
 * An error ends the step, of several calls too: there are no gradients, and the next call begins a new step.
 * (A call out of order, where a forward waits for its backward, changes nothing.) With FSDP_ERR_PEER or
 * FSDP_ERR_DEVICE the context is broken for good.
 */
FSDP_API enum fsdp_status fsdp_model_forward_backward(struct fsdp_model *model,
                                                      const struct fsdp_batch *micro, size_t n_micro,
                                                      struct fsdp_loss *loss, struct fsdp_err *err);

/**
 * The two halves, each a call; collective. The model's `forwards` come first, then its backwards: one, or as many, in
 * the same order. What the gradients are of is known only behind the last forward: they are scaled when they are read,
 * and of the mean over the targets of the whole step. *loss is of this forward alone, over all ranks.
 *
 * `batch` and what it points to are borrowed until the last backward: backward reads the input too. Between the calls
 * other things may be computed, an evaluation included, and collectives of one's own called, on every rank alike.
 *   FSDP_ERR_ARG   a token or target out of range (named), or a call out of order
 *   FSDP_ERR_NOT_FINITE  as above, of the last backward of a step
 * An error ends the step: the next call is a first forward again. A call out of order changes nothing.
 */
FSDP_API enum fsdp_status fsdp_model_forward(struct fsdp_model *model, const struct fsdp_batch *batch,
                                             struct fsdp_loss *loss, struct fsdp_err *err);
FSDP_API enum fsdp_status fsdp_model_backward(struct fsdp_model *model, struct fsdp_err *err);

/**
 * PyTorch's loop over micro-steps, one call each: false makes the next calls of fsdp_model_forward_backward() parts of a step
 * that goes on; true, the default, makes the next call its last. (Of two halves it is set before the first forward, and stays
 * until the last backward of these forwards has run.) The gradients of all calls add up, and are of the mean over
 * all of their targets; they are there, to be clipped and stepped on, behind the last. What is reduced before is
 * fsdp_model_options.gradient_sync's to say, as in a step of one call. The model `accumulates`.
 */
FSDP_API void fsdp_module_set_is_last_backward(struct fsdp_model *model, bool is_last_backward);

/**
 * *norm = global L2 norm of all gradients, without unsharding; collective. One all-reduce of two numbers for each mesh of the
 * tree, and one more for a tensor group. Replicas add one of a single number, which reports a rank that failed. If the norm
 * exceeds max_norm, gradients count as multiplied by max_norm / (norm + 1e-6) from here on: the factor is kept beside
 * them and applied by whoever reads them. max_norm 0 or infinity only measures.
 *   FSDP_ERR_ARG         there are no gradients: no backward, a step that failed or had no targets
 *   FSDP_ERR_NOT_FINITE  a gradient is NaN or infinite, on any rank: the message names the first such
 *                        parameter; or the norm is. *norm is what was measured, and nothing was multiplied.
 *                        The same on every rank
 * After any other error *norm and the gradients are as before.
 */
FSDP_API enum fsdp_status fsdp_clip_grad_norm(struct fsdp_model *model, double max_norm, double *norm,
                                              struct fsdp_err *err);

/** The same with the norm of order `norm_type`: a number of at least 1, or INFINITY for the largest element. */
FSDP_API enum fsdp_status fsdp_clip_grad_norm_of(struct fsdp_model *model, double max_norm, double norm_type,
                                                 double *norm, struct fsdp_err *err);

/**
 * After an error in the middle of a step that broke no rank: wait for what is still queued and drop gradients and
 * clipping factor, so that the next step begins as if the failed one had not been. Every rank calls it; a context
 * broken by FSDP_ERR_PEER or FSDP_ERR_DEVICE stays broken.
 *
 * A rank that fails alone (a hook that finds no memory) takes part in the collectives of its step to the end, and computes
 * nothing; behind the last one every other rank's call ends with its status and "rank R: " before its words, and all of them
 * come here. One whose data could not be had gives a batch without input: all refuse it.
 *   FSDP_ERR_UNSUPPORTED  hooks on final gradients (an optimizer in backward) were called on some rank in the failed step,
 *                         with what the rank that failed sent in their place, and not on that rank. Nothing undoes this: what
 *                         they updated is not what it was, on any rank, and is to be loaded from a checkpoint, weights and
 *                         optimizer state. Process groups, plan and memory are sound, and the run goes on from there
 */
FSDP_API enum fsdp_status fsdp_module_reset_iteration(struct fsdp_model *model, struct fsdp_err *err);

/* --- evaluation ------------------------------------------------------------------------------------------
 */

/**
 * Make ready to evaluate (batch, seq) inputs: forward only, no dropout; collective. Parameters are shared with training;
 * it has an arena of its own. Called again with other sizes it replaces the former. After an error no rank has an evaluation.
 */
FSDP_API enum fsdp_status fsdp_model_prepare_evaluation(struct fsdp_model *model, size_t batch, size_t seq,
                                                        struct fsdp_err *err);
/**
 * Logits of `input`; collective (every rank gives an input of its own). *logits: (batch, seq, classes)
 * float32, owned by the model, until the next evaluation. targets may be NULL; else *loss is over all ranks'
 * targets. A rank that has no input to give passes NULL: all ranks then return FSDP_ERR_ARG.
 */
FSDP_API enum fsdp_status fsdp_model_evaluate(struct fsdp_model *model, const void *input,
                                              const int32_t *targets, const float **logits,
                                              struct fsdp_loss *loss, struct fsdp_err *err);

/* --- parameters ------------------------------------------------------------------------------------------
 */

enum fsdp_which { FSDP_VALUE, FSDP_GRADIENT };

struct fsdp_parameter_info {
    const char *name; /* "layers.0.attention.wq.weight"; owned by the tree */
    int n_dims;
    size_t shape[FSDP_MAX_DIMS];
    size_t n_elems;
    int shard_dim; /* the dimension it is cut along */
    size_t first_row,
        n_rows; /* of this rank's shard along that dimension, within its part where it is split: */
    int split_dim, n_splits,
        split;       /* tensor parallelism: this rank has number `split` of n_splits equal parts along
                                       split_dim; n_splits 1: it is not split. shape and n_elems are the whole's */
    bool everywhere; /* ignored by sharding: all of it is on every rank */
    bool requires_grad,
        has_gradient; /* without the second it is not updated: frozen, or not reached by backward */
    int group;        /* the unit of sharding it belongs to, in order of first use */
};

/** Parameters in the tree's order. */
FSDP_API size_t fsdp_model_parameter_count(const struct fsdp_model *model);
FSDP_API enum fsdp_status fsdp_model_parameter(const struct fsdp_model *model, size_t index,
                                               struct fsdp_parameter_info *info, struct fsdp_err *err);
/** The whole of parameter `name`, or of its gradient, into out (n_elems) on every rank; collective. Between a forward and its
 * backward there are no gradients: FSDP_ERR_ARG. Nor are there between the micro-steps of a step, where only the last one reduces
 * them; nor on any rank, where one of them could not plan a step anew. Everything is checked and allocated on all ranks before the
 * first byte is sent. */
FSDP_API enum fsdp_status fsdp_parameter_gather(struct fsdp_model *model, const char *name,
                                                enum fsdp_which which, float *out, size_t n_elems,
                                                struct fsdp_err *err);
/** Replace the value of parameter `name`: each rank takes its rows of `values` (n_elems). Not collective. */
FSDP_API enum fsdp_status fsdp_parameter_set(struct fsdp_model *model, const char *name, const float *values,
                                             size_t n_elems, struct fsdp_err *err);

/**
 * One tensor of which this rank holds rows first_row ... first_row + n_rows - 1 of dimension shard_dim (of its part, where
 * tensor parallelism splits it), in place and contiguous as a tensor of that shape: reading it is saving, writing it is
 * loading. n_rows may be 0, data is then not to be touched. In the whole that is the box of `sizes` at `offsets`.
 */
struct fsdp_tensor_shard {
    const char *name;
    enum fsdp_dtype dtype;
    int n_dims;
    size_t shape[FSDP_MAX_DIMS];
    int shard_dim;
    bool everywhere; /* every rank holds all rows: a parameter that sharding ignores */
    size_t first_row, n_rows;
    size_t offsets[FSDP_MAX_DIMS], sizes[FSDP_MAX_DIMS];
    bool elsewhere; /* another rank holds the same and is the one that saves it */
    void *data;
};

/**
 * The model's tensors: fsdp_model_parameter_count() of them, in order. `out` has room for as many. Values that nothing has
 * filled yet are drawn first.
 */
FSDP_API void fsdp_model_state(struct fsdp_model *model, struct fsdp_tensor_shard *out);

/* --- what it is ------------------------------------------------------------------------------------------
 */

/** Bytes of this rank, known when the model is created; of what lies in the arena, the most of each class at
 * once. */
struct fsdp_memory {
    size_t parameters, gradients; /* shards, padded to equal rows */
    size_t host_parameters,
        host_gradients; /* of these what units offload: it is in host memory, not the device's */
    size_t gather;      /* gathered parameters: all-gather buffers and whole parameters */
    size_t reduce;      /* whole gradients and reduce-scatter buffers */
    size_t activations; /* what forward keeps, and gradients of activations */
    size_t scratch;     /* beside products and norms */
    size_t
        arena; /* what is allocated for the four above together, beside the gradients: they are not at their most at
                     once, and lie in the gradients' place as well until those are written */
    size_t evaluation; /* the arena of the evaluation that was prepared, beside all of that; 0: none was */
};

FSDP_API void fsdp_model_memory(const struct fsdp_model *model, struct fsdp_memory *memory);
/** The plan of a micro-step as text, one entry a line; to be freed with free(). NULL: out of memory. */
FSDP_API char *fsdp_model_plan_text(const struct fsdp_model *model);
FSDP_API struct fsdp_context *fsdp_model_context(const struct fsdp_model *model);

FSDP_END_DECLS

#endif
