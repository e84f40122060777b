/*
 * The recording of a forward: which operations, on which values, in which module, in which order. It is made
 * once, by calling the root's forward with symbolic values, and everything about a step is derived from it.
 *
 * An operation's kind is a table in nn/: what backward reads, what may be done in place, and the functions
 * that run it. plan/ reads the declarations and never calls the functions, so that plans are pure and can be
 * tested with kinds that compute nothing.
 *
 * Failure is sticky: after the first one every operation gives NULL, and graph->err tells what it was.
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

/** How an operation's backward gives the gradient of one input. */
enum graph_grad {
    GRAPH_GRAD_NONE,  /* not at all: tokens */
    GRAPH_GRAD_WRITE, /* overwrites its output; where a gradient has to be added, the plan gives it a buffer
                         to add from */
    GRAPH_GRAD_ADD,   /* overwrites or adds, as told */
    GRAPH_GRAD_COPY,  /* it is the output's gradient: no work when both can share one buffer */
};

struct graph_op;

struct graph_kind {
    const char *name;
    bool keeps_input[GRAPH_MAX_INPUTS]; /* backward reads the input */
    bool keeps_output;                  /* and the output */
    enum graph_grad grad[GRAPH_MAX_INPUTS];
    bool output_is_input; /* what it gives is input 0: no work when both can share one buffer */
    bool
        takes_parts; /* works feature by feature: of values of which a rank has a part of the features it gives such */
    bool reduces_output; /* forward is an all-reduce of the output over the tensor group */
    bool reduces_grad;   /* so is backward, of the gradient of input 0 */
    bool forward_in_place[GRAPH_MAX_INPUTS]; /* the output may lie where this input lies */
    bool grad_in_place;                      /* input 0's gradient may lie where the output's lies */
    bool pads_output; /* it may leave the rows of its output apart, where it has no bias */
    bool cheap;       /* not worth keeping what it gave where its inputs are kept anyway */
    bool costly;      /* a product: selective checkpointing keeps what it gave */
    /* Its functions take bfloat16 values and parameters as they are, and write what the output's dtype and
     * nn_run.d_param_dtype say, on every back end; a prepare() may also say so of one operation
     * (graph_op.takes_bf16). Others see float32 only: nn/ gives them copies (nn/convert.c). */
    bool takes_bf16;
    bool looks_up;              /* forward reads of a parameter no more elements than it gives */
    bool backward_reads_params; /* else they need not be gathered for it */

    /* Make ready (products, bytes below), run, release. See nn/nn.h; not called in plan/. */
    enum fsdp_status (*prepare)(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                struct fsdp_err *err);
    enum fsdp_status (*forward)(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
    enum fsdp_status (*backward)(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err);
};

/** A symbolic tensor: (batch, seq, features) of float32 or bfloat16, or (batch, seq) int32 when features is 0.
 * Its gradient has its dtype. */
struct fsdp_value {
    struct graph *graph;
    int id;
    enum fsdp_dtype dtype;
    size_t batch, seq, features;
    size_t row_stride; /* elements from one row to the next: the features, but for a result that is padded */
    int n_parts; /* ranks of the tensor group that have a part of the features each; 1: all have all of them */
    int producer; /* operation, or -1: the model's input */
    int forward;  /* the one that it is of */
    bool needs_grad;
};

/** Settings of an operation; each kind uses those it needs. */
struct graph_attrs {
    size_t heads;
    bool causal, transposed;
    float p, eps;
    struct fsdp_device_mesh
        *tensor;     /* the tensor group of a collective operation; engine/ knows what it is */
    int n_parts;     /* its size */
    bool skips_bias; /* another rank's part of the sum has it */
};

enum { GRAPH_MAX_PRODUCTS = 16 };

struct graph_op {
    const struct graph_kind *kind;
    char *name;  /* "layers.0.attention.wq": unique in its forward; dropout is keyed by it */
    int forward; /* the one that it is of */
    int visit;   /* the innermost unit's visit it belongs to */
    int n_inputs, n_params;
    struct fsdp_value *inputs[GRAPH_MAX_INPUTS];
    const struct fsdp_parameter *params[GRAPH_MAX_PARAMS];
    enum fsdp_dtype param_dtype; /* of all of them, as they are given to forward and backward */
    struct fsdp_value *output;
    struct graph_attrs attrs;
    size_t saved_bytes[GRAPH_MAX_SAVED]; /* from forward to backward */
    size_t forward_scratch, backward_scratch;
    bool
        fuses; /* with the operation behind it it can be one pass (a sum and its norm), where they are neighbours */
    /* The same of backwards, which come in the other order: with the operation before it; and the gradient of the bias of the
     * one before that is then a part of it. */
    bool fuses_backward, leaves_bias;
    bool takes_bf16; /* as its kind, or because prepare() found that it can here */
    bool converts;   /* runs on float32 copies, which begin in the scratch behind what it asked for itself: */
    size_t forward_copies, backward_copies;
    struct matmul *products[GRAPH_MAX_PRODUCTS]; /* prepared; owned by the kernels they were made with */
    struct fused_attention *attention;           /* the same; NULL: of products */
};

/** One time that a unit of sharding ran: its operations are between its two places in the list of events. */
struct graph_visit {
    const struct fsdp_module *unit;
    int forward;
    const struct fsdp_value *input,
        *output; /* of the unit's call; NULL: its parameters are used without one */
};

/** One call of the root's forward. Its visits, operations and events come before those of the next one. */
struct graph_forward {
    struct fsdp_value *input, *result;
    size_t first_event, end_event; /* the second behind its last */
    size_t first_op;
};

/** A stretch of events whose values are computed again in backward. Regions do not nest. */
struct graph_region {
    bool selective;
    size_t first_event, last_event; /* its GRAPH_BEGIN and GRAPH_END */
};

enum graph_event_kind { GRAPH_ENTER, GRAPH_LEAVE, GRAPH_OP, GRAPH_BEGIN, GRAPH_END };

struct graph_event {
    enum graph_event_kind kind;
    int index; /* of the visit, operation or region */
};

struct graph {
    bool training;
    struct fsdp_value **values;
    struct graph_op **ops;
    struct graph_visit *visits;
    struct graph_event *events;
    struct graph_region *regions;
    struct graph_forward *forwards; /* the last one is being recorded */
    struct fsdp_module **modules;   /* those whose forward is running, innermost last */
    int *open_visits;
    size_t n_values, n_ops, n_visits, n_events, n_modules, n_open, n_regions, n_forwards;
    size_t values_room, ops_room, visits_room, events_room, modules_room, open_room, regions_room,
        forwards_room;
    bool in_region;
    struct fsdp_value *input, *result; /* of the first forward; those of the others are alike */
    struct fsdp_err err;
};

struct graph_input {
    enum fsdp_dtype dtype;
    size_t batch, seq, features; /* features 0: tokens */
    size_t n_forwards; /* calls of the root before a backward, each on an input of its own; 0 counts as 1 */
    /* 0: the result is float32 with adjacent rows. Else its rows begin at multiples of so many elements, and in training
     * it stays bfloat16 where it is computed in that; both where a linear gives it and no other operation reads it. */
    size_t result_multiple;
};

/** Record `root`'s forwards on such inputs. The graph is to be released also after a failure. */
enum fsdp_status graph_record(struct graph *graph, struct fsdp_module *root, const struct graph_input *input,
                              bool training, struct fsdp_err *err);
void graph_fini(struct graph *graph);

/** The first failure of a recording; gives NULL for `return graph_fail(...)`. */
struct fsdp_value *graph_fail(struct graph *graph, enum fsdp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The same for memory that is not there. */
struct fsdp_value *graph_nomem(struct graph *graph);

/** A value of the forward being recorded, or NULL after a failure; `producer` as in struct fsdp_value. */
struct fsdp_value *graph_new_value(struct graph *graph, enum fsdp_dtype dtype, size_t batch, size_t seq,
                                   size_t features, int producer);
/** False after a failure. */
bool graph_append_event(struct graph *graph, enum graph_event_kind kind, size_t index);

/** The module whose forward is running. */
struct fsdp_module *graph_module(const struct graph *graph);
/** Is `module` of the tree that is recorded? If not, that is noted. */
bool graph_has_tree_of(struct graph *graph, const struct fsdp_module *module);

/**
 * Append an operation of `kind` with its inputs and parameters, whose output has `features`; batch and seq
 * are those of the first input. Its dtype is its parameters', to which its inputs are cast where
 * their unit casts inputs, and which they must have where it does not; without parameters it is float32 if any
 * input is. The name is the module's path, with the kind's name and a number behind it
 * when `own_name` is false (operations that are not modules). NULL after a failure.
 */
struct graph_op *graph_append(struct graph *graph, const struct graph_kind *kind,
                              const struct fsdp_module *module, bool own_name,
                              struct fsdp_value *const *inputs, int n_inputs,
                              const struct fsdp_parameter *const *params, int n_params, size_t features);

/**
 * An operation that uses the parameters of `module` without calling it stands between these two: where the module is a
 * unit that is not running, it runs meanwhile. False after a failure.
 */
bool graph_enter(struct graph *graph, const struct fsdp_module *module, bool *entered);
bool graph_leave(struct graph *graph, bool entered);

static inline bool graph_is_float(const struct fsdp_value *value)
{
    return value->dtype == FSDP_F32 || value->dtype == FSDP_BF16;
}

/** Elements of a value, without padding, and bytes, with it. */
size_t graph_value_elems(const struct fsdp_value *value);
size_t graph_value_bytes(const struct fsdp_value *value);

/**
 * Rows of zeros behind the rows of `op`'s first parameter where that is gathered: its product then computes the padding
 * of its output too, as zeros. 0 where the output is not padded, or the parameter may be used without a gather.
 */
size_t graph_zero_rows(const struct graph_op *op);

#endif
