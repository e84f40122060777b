/*
 * The recording of a model's forwards: which operations run, on which values, in which module, in which
 * order. It is made once, by calling the root's forward with symbolic values. Everything about a step is
 * derived from it.
 *
 * An operation's kind is a table in nn/: what its backward reads, what may happen in place, and the functions
 * that run it. plan/ reads the declarations and never calls the functions. So plans are pure, and tests use
 * kinds that compute nothing.
 *
 * A failure is sticky: after the first one every operation returns NULL, and graph->err holds the first one's
 * words.
 */
#ifndef PLAN_GRAPH_H
#define PLAN_GRAPH_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/dtype.h>
#include <fsdp/nn.h>

#include "shard_runtime/core/module.h"

struct graph;
struct numerics;
struct nn_run;
struct nn_kernels;
struct fused_attention;

enum { GRAPH_MAX_INPUTS = 3, GRAPH_MAX_PARAMS = 2, GRAPH_MAX_SAVED = 2 };

/** How an operation's backward produces the gradient of one input. */
enum graph_grad {
    GRAPH_GRAD_NONE, /* the input has no gradient, because it is tokens */
    /*
     * backward overwrites the gradient; if the gradient must be added to another, the plan gives backward a
     * separate buffer and adds that
     */
    GRAPH_GRAD_WRITE,
    GRAPH_GRAD_ADD, /* backward overwrites the gradient, or adds to it, as the entry says */
    /* the input's gradient equals the output's: backward does nothing if both can share one buffer */
    GRAPH_GRAD_COPY,
};

struct graph_op;

/** A kind of operation. Constant; nn/ has one for each. */
struct graph_kind {
    const char *name;
    bool keeps_input[GRAPH_MAX_INPUTS]; /* backward reads the input */
    bool keeps_output;                  /* backward reads the output */
    enum graph_grad grad[GRAPH_MAX_INPUTS];
    bool output_is_input; /* the output is input 0: no work if both can share one buffer */
    bool takes_parts;     /* works on each feature alone, so that a part of the features gives a part */
    bool reduces_output;  /* forward is an all-reduce of the output over the tensor group */
    bool reduces_grad;    /* backward is an all-reduce of the gradient of input 0 over the tensor group */
    bool forward_in_place[GRAPH_MAX_INPUTS]; /* the output may take the place of this input */
    bool grad_in_place; /* the gradient of input 0 may take the place of the output's gradient */
    bool pads_output;   /* may leave gaps between the rows of its output, if it has no bias */
    bool cheap;         /* the output is cheap to compute again from the inputs, so it need not be kept */
    bool costly;        /* a product: selective checkpointing keeps its output */
    /*
     * On every back end its functions take bfloat16 values and parameters as they are, and write what the
     * output's dtype and nn_run.d_param_dtype say. prepare() may say the same of one operation
     * (graph_op.takes_bf16). All other functions see float32 only: nn/convert.c gives them copies.
     */
    bool takes_bf16;
    bool looks_up;              /* forward reads no more elements of a parameter than the output has */
    bool backward_reads_params; /* false: backward needs no gathered parameters */

    /*
     * Three steps: make ready (products, and the bytes below), run forward, run backward; see nn/nn.h. plan/
     * does not call them.
     */
    enum fsdp_status (*prepare)(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                struct fsdp_err *err);
    enum fsdp_status (*forward)(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
    enum fsdp_status (*backward)(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
};

/**
 * A symbolic tensor: (batch, seq, features) of float32 or bfloat16, or (batch, seq) of int32 if features is
 * 0. Its gradient has the same dtype.
 */
struct fsdp_value {
    struct graph *graph;
    int id; /* its number in graph->values */
    enum fsdp_dtype dtype;
    size_t batch, seq, features;
    size_t row_stride; /* elements from one row to the next: `features`, or more for a padded result */
    /* ranks of the tensor group among which the features are divided; 1: each rank has all features */
    int n_parts;
    int producer;    /* number of the operation; -1: the model's input */
    int forward;     /* number of the forward that it belongs to */
    bool needs_grad; /* a parameter that learns comes before it */
};

/** Settings of an operation; each kind uses those it needs. */
struct graph_attrs {
    size_t heads;
    bool causal, transposed;
    float p, eps;
    /* the tensor group of a collective operation; plan/ does not look into it */
    struct fsdp_device_mesh *tensor;
    int n_parts;  /* its size */
    int function; /* of an activation: enum numerics_function */
    /* this rank does not add the bias, because another rank adds it to its part of the sum */
    bool skips_bias;
};

enum { GRAPH_MAX_PRODUCTS = 16 };

/** One operation of the recording. */
struct graph_op {
    const struct graph_kind *kind;
    char *name;  /* "layers.0.attention.wq": unique in its forward; dropout is keyed by it */
    int forward; /* number of the forward that it belongs to */
    int visit;   /* number of the visit of the innermost unit to which the operation belongs */
    int n_inputs, n_params;
    struct fsdp_value *inputs[GRAPH_MAX_INPUTS];
    const struct fsdp_parameter *params[GRAPH_MAX_PARAMS];
    enum fsdp_dtype param_dtype; /* dtype in which forward and backward get the parameters */
    struct fsdp_value *output;
    struct graph_attrs attrs;
    size_t saved_bytes[GRAPH_MAX_SAVED];      /* what it keeps from forward to backward */
    size_t forward_scratch, backward_scratch; /* bytes */
    bool fuses; /* forward can run in one pass with the next operation's, as a sum and its norm */
    /* backward can run in one pass with the backward of the operation that comes before this one */
    bool fuses_backward;
    /* backward in one pass can also give the bias gradient of the operation before the earlier one */
    bool leaves_bias;
    bool takes_bf16; /* the kind takes bfloat16, or prepare() found that this operation does */
    /* runs on float32 copies, which begin in its scratch after the bytes that it needs itself: */
    bool converts;
    size_t forward_copies, backward_copies;
    /* prepared products; owned by the kernels with which they were made */
    struct matmul *products[GRAPH_MAX_PRODUCTS];
    struct fused_attention *attention; /* the same; NULL: attention of products */
};

/** One run of a unit of sharding. Its operations are between its two places in the list of events. */
struct graph_visit {
    const struct fsdp_module *unit;
    int forward;
    /* input and output of the unit's call; NULL: its parameters are used without a call */
    const struct fsdp_value *input, *output;
};

/**
 * One call of the root's forward. Its visits, operations and events come before those of the next forward.
 */
struct graph_forward {
    struct fsdp_value *input, *result;
    size_t first_event, end_event; /* the events of the forward: first_event, and the one after its last */
    size_t first_op;
};

/**
 * A stretch of events whose values are computed again in backward (activation checkpointing). Regions do not
 * nest.
 */
struct graph_region {
    bool selective;                 /* outputs of costly operations are kept */
    size_t first_event, last_event; /* its GRAPH_BEGIN and GRAPH_END */
};

/* A visit is entered or left; an operation runs; a region begins or ends. */
enum graph_event_kind { GRAPH_ENTER, GRAPH_LEAVE, GRAPH_OP, GRAPH_BEGIN, GRAPH_END };

struct graph_event {
    enum graph_event_kind kind;
    int index; /* number of the visit, operation or region */
};

/** The recording. It owns everything it points to but kinds, parameters and modules. */
struct graph {
    bool training;
    struct fsdp_value **values;
    struct graph_op **ops;
    struct graph_visit *visits;
    struct graph_event *events;
    struct graph_region *regions;
    struct graph_forward *forwards; /* all forwards; during recording the last one is incomplete */
    struct fsdp_module **modules;   /* those whose forward is running, innermost last */
    int *open_visits;
    size_t n_values, n_ops, n_visits, n_events, n_modules, n_open, n_regions, n_forwards;
    size_t values_room, ops_room, visits_room, events_room, modules_room, open_room, regions_room,
        forwards_room;
    bool in_region;
    struct fsdp_value *input, *result; /* those of the first forward; the others have the same form */
    struct fsdp_err err;
};

/** The input of a model's calls. */
struct graph_input {
    enum fsdp_dtype dtype;
    size_t batch, seq, features; /* features 0: tokens */
    /* forwards (calls of the root) before a backward, each with an input of its own; 0 counts as 1 */
    size_t n_forwards;
    /*
     * 0: the result is float32 with adjacent rows. Otherwise its rows begin at multiples of this number of
     * elements, and in training it stays bfloat16 if it is computed in bfloat16. Both hold only for the
     * result of a linear that no other operation reads.
     */
    size_t result_multiple;
};

/**
 * Record the forwards of `root`, which is borrowed, on such inputs. *graph must be released after a failure
 * as well.
 *   FSDP_ERR_ARG    the model is not well formed; the words name module and operation
 *   FSDP_ERR_NOMEM  no memory for the recording
 */
enum fsdp_status graph_record(struct graph *graph, struct fsdp_module *root, const struct graph_input *input,
                              bool training, struct fsdp_err *err);
/** Free everything that the recording owns, and leave it empty. */
void graph_fini(struct graph *graph);

/** Keep this failure, unless there is one already. Returns NULL, for `return graph_fail(...)`. */
struct fsdp_value *graph_fail(struct graph *graph, enum fsdp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** As graph_fail(), for a lack of memory. */
struct fsdp_value *graph_nomem(struct graph *graph);

/**
 * A new value of the forward that is being recorded; the graph owns it. `producer` as in struct fsdp_value.
 * NULL after a failure, and if its bytes do not fit size_t.
 */
struct fsdp_value *graph_new_value(struct graph *graph, enum fsdp_dtype dtype, size_t batch, size_t seq,
                                   size_t features, int producer);
/** Append an event about the visit, operation or region `index`. False after a failure. */
bool graph_append_event(struct graph *graph, enum graph_event_kind kind, size_t index);

/** The innermost module whose forward is running. */
struct fsdp_module *graph_module(const struct graph *graph);
/** Is `module` in the tree that is recorded? If not, that is recorded as a failure. */
bool graph_has_tree_of(struct graph *graph, const struct fsdp_module *module);

/**
 * Append an operation of `kind` of `module`, with its inputs and parameters. Its output has `features`, and
 * batch and seq of the first input.
 *   dtype  The output has the dtype of the parameters; without parameters it is float32 if any input is.
 *          Inputs are cast to the parameters' dtype if their unit casts inputs; if it does not, they must
 *          have that dtype.
 *   name   The module's path. With own_name false, for operations that are not modules, the kind's name and a
 *   number follow.
 * Returns the operation, which the graph owns; NULL after a failure.
 */
struct graph_op *graph_append(struct graph *graph, const struct graph_kind *kind,
                              const struct fsdp_module *module, bool own_name,
                              struct fsdp_value *const *inputs, int n_inputs,
                              const struct fsdp_parameter *const *params, int n_params, size_t features);

/**
 * Call these two functions before and after an operation that uses the parameters of `module` without calling
 * it. If the module is a unit that is not running, it counts as running in between: *entered says so, and
 * goes to graph_leave(). False after a failure.
 */
bool graph_enter(struct graph *graph, const struct fsdp_module *module, bool *entered);
bool graph_leave(struct graph *graph, bool entered);

static inline bool graph_is_float(const struct fsdp_value *value)
{
    return value->dtype == FSDP_F32 || value->dtype == FSDP_BF16;
}

/** Elements of a value, without the padding of its rows. */
size_t graph_value_elems(const struct fsdp_value *value);
/** Bytes of a value, with the padding of its rows. */
size_t graph_value_bytes(const struct fsdp_value *value);

/**
 * Rows of zeros that follow the rows of `op`'s first parameter when it is gathered. Its product then computes
 * the padding of its output too, as zeros. 0: the output is not padded, or the parameter may be used without
 * a gather.
 */
size_t graph_zero_rows(const struct graph_op *op);

#endif
