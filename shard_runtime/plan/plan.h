/*
 * The plan of a micro-step: one linear program made from the recording of its forwards, of which there is one
 * unless several are run before a backward. It says, entry by entry, what runs, on which stream, after which other entry, and which buffers it reads and writes; and where in
 * one arena each buffer lies. Whoever runs a step, reports memory or traffic, draws a trace or compares ranks
 * reads this.
 *
 * Order of events is that of PyTorch's FSDP2. Forward: a unit's parameters are gathered when it is entered,
 * those of the next unit while it computes, and freed when it is left (not the root's, unless told).
 * Backward: gathered again in the reverse order, the one before prefetched; when a unit's gradients are
 * complete its parameters are freed and its gradients reduced. Several forwards: each in its order; then one
 * backward of the sum of their losses, the last forward's part of it first, as autograd goes; or a backward of
 * each. A program is run call by call: each forward is one, and each backward. With a world of one there is nothing to gather
 * or reduce, and no entry for it; parameters of another dtype than their shards are still unpacked.
 *
 * Where a unit offloads, on a device with memory of its own, its shards are in host memory: they are copied in ahead of the
 * gather, gradients out behind the reduction, each on a stream of its own. Nothing else of the order changes.
 *
 * Shards of parameters and gradients are float32. In between: param_dtype gathered and whole, grad_dtype whole
 * gradients, reduce_dtype packed ones; every conversion is part of the copy that is made anyway.
 *
 * A group may have coded parameters, which are gathered in float8, a byte an element, and decoded as they are unpacked.
 * Their largest sizes, over all ranks, are found before the group's first gather and serve until the micro-step ends.
 * Such a group passes through its codes in a world of one too, so that every world computes with the same weights.
 *
 * Pure: from equal recordings and options come equal plans, on every rank.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/model.h>

#include "shard_runtime/plan/divide.h"
#include "shard_runtime/plan/graph.h"

enum plan_stream {
    PLAN_COMPUTE,
    PLAN_GATHERS,
    PLAN_REDUCES,
    PLAN_ALL_REDUCES,
    PLAN_TENSOR,     /* operations that are collectives of a tensor group */
    PLAN_COPIES_IN,  /* shards on their way from host memory */
    PLAN_COPIES_OUT, /* gradients on theirs to it */
    PLAN_N_STREAMS
};

enum plan_entry_kind {
    PLAN_COPY_IN, /* from host memory: the group's shards into `shard`, or (-1) this rank's row of `gathered`; or, where
                     `sum` is set, its gradient shards into that: what earlier micro-steps of the step left */
    PLAN_AMAX,   /* the largest size in each coded parameter of the group, over all ranks, into `amax` */
    PLAN_GATHER, /* all-gather of the group's shards into `gathered`, (W, a row) */
    PLAN_UNPACK, /* `gathered` into `whole`: each parameter contiguous */
    PLAN_SLICE,  /* this rank's part of `whole`, cut over k ranks, into `slice`: what backward gathers from */
    PLAN_RESHARD, /* `whole` ends */
    PLAN_FORWARD,
    PLAN_LOSS, /* cross-entropy of the result; when training also the gradient of the result */
    PLAN_BACKWARD,
    PLAN_PACK,   /* whole gradients into `packed`, (W, row_elems), tails zero */
    PLAN_REDUCE, /* reduce-scatter of `packed` into the group's gradient shards, or this rank's row of it */
    PLAN_ALL_REDUCE, /* that row over the replicas, or the gradient shards when `packed` is -1 */
    PLAN_STORE,      /* that row into the gradient shards, which are float32: converted, or added */
    PLAN_COPY_OUT,   /* `sum`, or (-1) that row, into the gradient shards, which are in host memory */
    PLAN_COMPLETE,   /* the gradient shards are final: the unit's hook is called */
};

/* Which micro-steps of a step an entry takes part in. */
enum plan_when { PLAN_ALWAYS, PLAN_FIRST, PLAN_LAST };

enum plan_class {
    PLAN_ACTIVATIONS,
    PLAN_GATHERED,
    PLAN_REDUCED,
    PLAN_SCRATCH,
    PLAN_GRADIENTS, /* shards of gradients, of options that say so */
    PLAN_N_CLASSES
};

/** What a buffer holds: for messages and the text of a plan. */
enum plan_what {
    PLAN_VALUE,      /* of value `index` */
    PLAN_VALUE_GRAD, /* of value `index` */
    PLAN_SAVED,      /* by operation `index`, from forward to backward */
    PLAN_WORK,       /* scratch of operation `index` */
    PLAN_TEMPORARY,  /* a gradient on its way to be added, of value `index` */
    PLAN_SHARD_ROW,  /* of group `index`, as the four below */
    PLAN_AMAX_LIST,
    PLAN_GATHER_ROWS,
    PLAN_SLICE_ROW,
    PLAN_WHOLE_PARAMS,
    PLAN_PACK_ROWS, /* of group `index`, as the one below */
    PLAN_SUM_ROW,
    PLAN_WHOLE_GRAD,  /* of parameter `index` */
    PLAN_GRAD_SHARDS, /* of group `index` */
};

struct plan_buffer {
    enum plan_what what;
    int index;
    enum plan_class class;
    size_t size_bytes;
    bool step_long; /* lives from the step's first micro-step to its last */
    bool fixed;  /* its place was given before the others', and it outlives the program: last is n_entries */
    int storage; /* the buffer whose place this one shares; itself when none */
    int first, last; /* entries; of all buffers that share the storage */
    size_t offset;   /* in the arena */
};

/* Whole parameters are in two buffers, as they live: what no operation reads in backward, and the rest. */
enum plan_part { PLAN_FORWARD_ONLY, PLAN_BOTH_WAYS, PLAN_N_PARTS };

/** Buffers are named by number; -1: none. */
struct plan_entry {
    enum plan_entry_kind kind;
    enum plan_when when;
    enum plan_stream stream;
    int index;    /* of the operation, group, or of PLAN_LOSS the forward */
    int call;     /* of the program: 0 ... n_forwards - 1 the forwards, behind them the backwards */
    int backward; /* number of the backward it belongs to, each being a micro-step; 0 in forwards */

    int gathered, packed; /* of a group's entry; gathered -1: unpacked from the shards themselves */
    int whole[PLAN_N_PARTS];
    int shard; /* of a group that offloads: this rank's row on the device, (row_elems) float32; -1: its row of
                  `gathered` is that already */
    int sum; /* the same: what its gradient shards are to be, (grad_row_elems) float32 on the device; -1: the row of
                  `packed` is that already */
    int behind; /* a packed buffer whose every use this entry comes behind, without using it; -1 */
    int amax;   /* of a group with coded parameters: written, or what codes are made and read by; -1 */
    int slice;  /* PLAN_SLICE: what is written; PLAN_GATHER: what is gathered, over k ranks; -1: the shards */
    int k;      /* of PLAN_GATHER and PLAN_UNPACK: rows in `gathered` */
    bool into_shards; /* PLAN_REDUCE: the gradient shards themselves receive the sum */
    bool adds;        /* PLAN_STORE: adds to what earlier micro-steps of the step left */
    bool calls_hook;  /* before it stores, or after it all-reduced the shards: the unit's hook is called */

    int input[GRAPH_MAX_INPUTS], output; /* -1: the model's input; in backward: not kept */
    int saved[GRAPH_MAX_SAVED], scratch;
    int params
        [GRAPH_MAX_PARAMS]; /* the `whole` that holds the parameter; -1: its shard is all of it, or (in backward) it
                                     is not read */
    int d_output, d_input[GRAPH_MAX_INPUTS], d_param[GRAPH_MAX_PARAMS];
    bool wants_d_input[GRAPH_MAX_INPUTS]; /* false: nothing before it needs a gradient */
    bool add_d_input[GRAPH_MAX_INPUTS];   /* add to what an earlier entry wrote */
    int temporary[GRAPH_MAX_INPUTS];      /* where to write a gradient that is then added to d_input */
    bool add_d_param[GRAPH_MAX_PARAMS];   /* an earlier entry of this micro-step wrote it */

    bool again; /* of a forward: for the second time, for backward's sake */
    bool with_next,
        with_before; /* of two neighbours, forwards or backwards, that are one pass: all of it happens in the first */
    int bias_of; /* of the first of two such backwards: the entry whose second parameter's gradient is a part of it; -1 */
    bool bias_before; /* that entry */

    int first_access, n_accesses; /* in plan->accesses */
    int waits[PLAN_N_STREAMS];    /* the entry of that stream to wait for, or -1 */
    bool records;                 /* some entry of another stream waits for this one */
};

/** One use of a buffer by an entry. */
struct plan_access {
    int entry, buffer;
    bool reads, writes;
};

struct plan_param {
    const struct fsdp_parameter *parameter;
    int group;
    size_t chunk_elems; /* C rows: this parameter's part of a group's row */
    size_t row_offset;  /* of that part in the row, in elements */
    size_t grad_offset; /* of its gradient's part in the row of gradients */
    size_t slice_chunk; /* its part of a row cut over the group's k ranks */
    int coded;          /* it is gathered in float8: its number in the group's `amax`; -1: in param_dtype */
    size_t gather_at, slice_at; /* of its part in a gathered row, and in one of k, in bytes */
    bool trains;                /* has a gradient: backward reaches it, or its unit reduces zeros for it */
    enum plan_part part;        /* of the whole parameters that it is in */
    size_t whole_offset;        /* in that, in elements; aligned to 64 bytes */
    size_t zero_elems;          /* behind it, which unpacking sets to zero: graph_zero_rows() */
    bool has_grad;              /* this backward wrote it already: known while the program is being written */
    int grad_shards; /* the buffer of its gradient shard (but for its ends), where backward writes it anew; else -1 */
};

struct plan_group {
    const struct fsdp_module *unit; /* of a list the first */
    int n_units;                    /* modules of the list */
    bool local;                     /* the ignored parameters: all of them on every rank, nothing travels */
    int *params;                    /* in the tree's order */
    int n_params;
    int W, R;              /* ranks that each is cut over, and replicas; 1 and 1 where local */
    size_t row_elems;      /* S: one rank's shards */
    size_t grad_row_elems; /* of those that have a gradient */
    int k;                 /* ranks that hold the parameters between forward and backward; 0: all or none */
    size_t gather_row_bytes, slice_row_bytes; /* of a rank in a gather, and of one over k ranks */
    int n_coded;                              /* of its parameters, those gathered in float8 */
    int amax_parts; /* ranks of the tensor group that have parts of one of these; 1: none is split */
    size_t whole_bytes[PLAN_N_PARTS];
    enum fsdp_dtype param_dtype;  /* of gathered and whole parameters, and what is computed with them */
    enum fsdp_dtype reduce_dtype; /* of packed gradients and their reduction */
    enum fsdp_dtype grad_dtype;   /* of whole gradients */
    bool gathers;  /* its whole parameters are not its shards: other ranks hold some, or another dtype */
    bool reduces;  /* its gradients pass through a reduction */
    bool offloads; /* its shards are in host memory, which is not the device's */
    struct plan_division division;
    bool accumulates_whole; /* gradients of a step's micro-steps add up whole, and are reduced in the last */
    bool reshard_after_forward, keep_after_backward;
    int kept; /* `whole` where it is kept from one micro-step to the next, else -1; all of it is one part then */
    int grad_shards; /* the buffer of its gradient shards, where a reduction writes them anew; else -1 */
};

struct plan_options {
    int W; /* ranks that a parameter is sharded over */
    int R; /* replicas of that; 0 counts as 1 */
    /* The two of a unit, where units have meshes of their own; NULL: W and R of all. */
    void (*ranks_of)(const void *user, const struct fsdp_module *unit, int *W, int *R);
    const void *ranks_user;
    bool accumulates;              /* true where there is a backward of each of several forwards */
    enum fsdp_backwards backwards; /* of several forwards */
    enum fsdp_gradient_sync gradient_sync;
    int prefetch;         /* units gathered ahead: 0 or 1 */
    bool keeps_cheap;     /* what cheap operations gave is kept for backward, not made again */
    bool host_apart;      /* device memory is not the host's: units may offload */
    bool holds_gradients; /* the arena begins with the gradient shards that are in device memory */
    size_t (*chunk_rows)(size_t D, int W);
};

struct plan {
    struct plan_options options;
    const struct graph *graph; /* borrowed */
    struct plan_param *params; /* of the whole tree, in its order */
    struct plan_group *groups; /* in order of first use; groups[0] is the root's; unused ones last */
    struct plan_buffer *buffers;
    struct plan_entry *entries;
    struct plan_access *accesses; /* of all entries, in their order; an entry may name a buffer twice */
    int reduce_buffers;           /* packed gradients in flight at once */
    int n_forwards, n_backwards;  /* calls of the program */
    int *grads; /* (n_backwards, n_params): buffers of whole gradients. -1: straight to the shard, or none */
    int n_params, n_groups, n_buffers, n_entries, n_accesses;
    size_t buffers_room, entries_room, groups_room, accesses_room;
    size_t arena_bytes;
    size_t
        gradient_bytes; /* of these the first: the groups' gradient shards in their order, each on 64 bytes */
    size_t class_bytes[PLAN_N_CLASSES]; /* the most of each at once */
};

/** Make the plan of `graph`, whose operations know their bytes. *plan is to be released also after a failure.
 */
enum fsdp_status plan_make(struct plan *plan, const struct graph *graph, const struct fsdp_module *root,
                           const struct plan_options *options, struct fsdp_err *err);
void plan_fini(struct plan *plan);

/** Of each parameter of the plan, whose list is there: does backward reach it, and does it require a gradient? */
enum fsdp_status plan_find_reached(const struct plan *plan, bool *reached, struct fsdp_err *err);

/** The buffer of parameter `param`'s whole gradient in the backward that `entry` is of; -1: it has none. */
int plan_grad(const struct plan *plan, const struct plan_entry *entry, int param);

/** Bytes of all whole parameters of a group, and where in so many of them a part of them begins. */
size_t plan_whole_bytes(const struct plan_group *group);
size_t plan_part_offset(const struct plan_group *group, enum plan_part part);

/**
 * Bytes that an entry reads and writes on this rank's device, each buffer once: the least that it can move. Without tokens; of a collective
 * what lies in its buffers. What lies between two operations that are one pass counts as written. 0: it does nothing.
 */
uint64_t plan_entry_bytes(const struct plan *plan, const struct plan_entry *entry);

/** Number of the parameter in plan->params, or -1. */
int plan_param_index(const struct plan *plan, const struct fsdp_parameter *parameter);

/** The plan as text, to be freed; NULL: out of memory. */
char *plan_text(const struct plan *plan);

/**
 * A hash of what the plan runs in which order: kind, stream, subject, call and micro-steps of each entry. Ranks whose hashes are equal
 * make the same collectives in the same order; sizes are not in it, as ranks of a tensor group may have unequal parts.
 */
uint64_t plan_hash(const struct plan *plan);

/** The path of the group's first unit, or "(root)". */
const char *plan_unit_name(const struct plan *plan, int group);
const char *plan_entry_name(enum plan_entry_kind kind); /* "gather", ... */
const char *plan_stream_name(enum plan_stream stream);  /* "compute", ... */

/* --- the steps of plan_make(), each in a file of its own
 * ---------------------------------------------------- */

enum fsdp_status plan_form_groups(struct plan *plan, const struct fsdp_module *root, struct fsdp_err *err);
enum fsdp_status plan_write_program(struct plan *plan, struct fsdp_err *err);
void plan_fuse_neighbours(struct plan *plan);
enum fsdp_status plan_lay_gradients(struct plan *plan, struct fsdp_err *err);
enum fsdp_status plan_list_accesses(struct plan *plan, struct fsdp_err *err);
enum fsdp_status plan_share_buffers(struct plan *plan, struct fsdp_err *err);
enum fsdp_status plan_place_buffers(struct plan *plan, struct fsdp_err *err);
enum fsdp_status plan_order_streams(struct plan *plan, struct fsdp_err *err);

#endif
