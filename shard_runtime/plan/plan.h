/*
 * The plan of a micro-step: one linear program, made from the recording of its forwards. Usually there is one
 * forward; several may run before a backward. For each entry the plan says what runs, on which stream, after
 * which other entries, and which buffers it uses. It also says where each buffer is in one arena. Running a
 * step, reporting memory or traffic, drawing a trace and comparing ranks all read this plan.
 *
 * The order of events is that of PyTorch's FSDP2:
 *   forward    A unit's parameters are gathered when the unit is entered. The next unit's are gathered while
 *   it computes.
 *              When the unit is left they are freed; the root keeps its own, unless its policy says
 *              otherwise.
 *   backward   Parameters are gathered again in the reverse order, with the same look-ahead. When a unit's
 *              gradients are complete, its parameters are freed and its gradients reduced.
 *   several forwards   The forwards run in order. Then comes one backward of the sum of their losses, the
 *                      last forward's part first, as autograd does it; or a backward for each forward.
 *
 * The program runs call by call: each forward is a call, and each backward. In a world of one there is
 * nothing to gather or reduce, and no entry for it. Parameters whose dtype is not that of their shards are
 * still unpacked.
 *
 * A unit may offload on a device with memory of its own. Its shards are then in host memory. They are copied
 * in before the gather, and gradients are copied out after the reduction, on streams of their own. The rest
 * of the order is unchanged.
 *
 * Dtypes: shards of parameters and gradients are float32; gathered and whole parameters are param_dtype;
 * whole gradients are grad_dtype; packed gradients are reduce_dtype. Each conversion is part of a copy that
 * is made anyway.
 *
 * A group may have coded parameters. They are gathered in float8, one byte an element, and decoded when they
 * are unpacked. Their largest sizes over all ranks are found before the group's first gather, and are used
 * until the micro-step ends. A world of one codes and decodes too, so that every world computes with the same
 * weights.
 *
 * This is pure: equal recordings and options give equal plans on every rank.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/model.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/plan/divide.h"
#include "shard_runtime/plan/entry.h"
#include "shard_runtime/plan/graph.h"

enum { PLAN_ALIGN_BYTES = 64 }; /* every buffer, and every whole parameter, begins at a multiple of this */

/** `size_bytes` rounded up to a multiple of PLAN_ALIGN_BYTES. */
static inline size_t plan_align(size_t size_bytes)
{
    return round_up(size_bytes, PLAN_ALIGN_BYTES);
}

/** The uses of memory, as in reports. */
enum plan_class {
    PLAN_ACTIVATIONS,
    PLAN_GATHERED,
    PLAN_REDUCED,
    PLAN_SCRATCH,
    PLAN_GRADIENTS, /* gradient shards, if options.holds_gradients */
    PLAN_N_CLASSES
};

/** The content of a buffer; `index` in struct plan_buffer is the number of the thing named here. */
enum plan_what {
    PLAN_VALUE,       /* a value */
    PLAN_VALUE_GRAD,  /* the gradient of a value */
    PLAN_SAVED,       /* what an operation keeps from forward to backward */
    PLAN_WORK,        /* an operation's scratch */
    PLAN_TEMPORARY,   /* a gradient of a value, before it is added to the value's gradient */
    PLAN_SHARD_ROW,   /* of a group that offloads: the copy of this rank's shards on the device */
    PLAN_AMAX_LIST,   /* of a group: the largest sizes of its coded parameters */
    PLAN_GATHER_ROWS, /* of a group: the k rows of a gather */
    /* of a group: the slice of the parameters that this rank keeps from forward to backward */
    PLAN_SLICE_ROW,
    PLAN_WHOLE_PARAMS, /* of a group: one part of its whole parameters */
    PLAN_PACK_ROWS,    /* of a group: packed gradients, a row for each of W ranks */
    PLAN_SUM_ROW,      /* of a group: gradient shards on their way to or from host memory */
    PLAN_WHOLE_GRAD,   /* a parameter's whole gradient */
    PLAN_GRAD_SHARDS,  /* of a group: its gradient shards, or some of them */
};

/** A place in the arena. Buffers are numbered; -1 stands for none. */
struct plan_buffer {
    enum plan_what what;
    int index;
    enum plan_class class;
    size_t size_bytes;
    bool step_long; /* lives from the step's first micro-step to its last */
    bool fixed;     /* was placed before the others and outlives the program: `last` is n_entries */
    int storage;    /* the buffer whose place this one shares; its own number if it shares none */
    /* the first and the last entry between which the place is used by any buffer that shares it */
    int first, last;
    size_t offset; /* in the arena, in bytes */
};

struct plan_param {
    const struct fsdp_parameter *parameter;
    int group;
    size_t chunk_elems; /* elements of this parameter in a group's row: C rows of it */
    size_t row_offset;  /* where the parameter begins in the group's row, in elements */
    size_t grad_offset; /* where the parameter's gradient begins in the row of gradients, in elements */
    size_t slice_chunk; /* elements of this parameter in a row that is cut over the group's k ranks */
    int coded;          /* gathered in float8: its number in the group's list of sizes; -1: in param_dtype */
    size_t gather_at;   /* where the parameter begins in a gathered row, in bytes */
    size_t slice_at;    /* the same in a row of k */
    /* has a gradient: backward reaches the parameter, or its unit reduces zeros for it */
    bool trains;
    enum plan_part part; /* the part of the group's whole parameters that contains this parameter */
    size_t whole_offset; /* where the parameter begins in that part, in elements */
    size_t zero_elems;   /* elements after the parameter that unpacking sets to zero: graph_zero_rows() */
    /* used only while the program is written: the current backward has written the gradient already */
    bool has_grad;
    int grad_shards; /* the buffer of the parameter's gradient shard, if backward overwrites that; else -1 */
};

/** Parameters that travel together: those of a unit, or of a list of units. */
struct plan_group {
    const struct fsdp_module *unit; /* of a list the first */
    int n_units;                    /* modules of the list */
    bool local;                     /* the ignored parameters: every rank has all of them */
    int *params;                    /* numbers of its parameters in plan->params, in the tree's order */
    int n_params;
    int W, R;              /* W: ranks over which each parameter is cut; R: replicas; 1 and 1 if local */
    size_t row_elems;      /* S: elements in one rank's shards */
    size_t grad_row_elems; /* elements of the row that have a gradient */
    int k;                 /* ranks that keep a slice between forward and backward; 0: no slices */
    size_t gather_row_bytes, slice_row_bytes; /* size of a rank's row in a gather over W, and over k ranks */
    int n_coded;                              /* parameters that are gathered in float8 */
    int amax_parts; /* ranks of the tensor group over which a coded parameter is split; 1: none is */
    size_t whole_bytes[PLAN_N_PARTS];
    enum fsdp_dtype param_dtype;  /* dtype of gathered and whole parameters, and of computations with them */
    enum fsdp_dtype reduce_dtype; /* of packed gradients and their reduction */
    enum fsdp_dtype grad_dtype;   /* of whole gradients */
    /* whole parameters are made from the shards: there are several ranks, or another dtype */
    bool gathers;
    bool reduces;  /* gradients pass through a reduction */
    bool offloads; /* shards are in host memory, which is not the device's */
    struct plan_division division;
    bool accumulates_whole; /* whole gradients add up over micro-steps; only the last one reduces */
    bool reshard_after_forward, keep_after_backward;
    /*
     * the buffer of whole parameters that lasts from one micro-step to the next; it is then the only part;
     * else -1
     */
    int kept;
    int grad_shards; /* the buffer of its gradient shards, if a reduction overwrites them; else -1 */
};

struct plan_options {
    int W; /* ranks that a parameter is sharded over */
    int R; /* replicas of that; 0 counts as 1 */
    /**
     * Fills in W and R for a unit, if units may have meshes of their own; NULL: `W` and `R` above apply to
     * all units.
     */
    void (*ranks_of)(const void *user, const struct fsdp_module *unit, int *W, int *R);
    const void *ranks_user;
    bool accumulates;              /* a step may have several micro-steps */
    enum fsdp_backwards backwards; /* of several forwards */
    enum fsdp_gradient_sync gradient_sync;
    int prefetch;         /* units gathered ahead: 0 or 1 */
    bool keeps_cheap;     /* outputs of cheap operations are kept for backward, not computed again */
    bool host_apart;      /* device memory is separate from host memory, so units may offload */
    bool holds_gradients; /* the arena begins with the gradient shards that are in device memory */
    size_t (*chunk_rows)(size_t D, int W); /* returns how many of D rows each of W ranks has */
};

struct plan {
    struct plan_options options;
    const struct graph *graph; /* borrowed */
    struct plan_param *params; /* of the whole tree, in its order */
    /* groups in order of first use; groups[0] is the root's; unused ones are last */
    struct plan_group *groups;
    struct plan_buffer *buffers;
    struct plan_entry *entries;
    struct plan_access *accesses; /* accesses of all entries, in order; an entry may name a buffer twice */
    int reduce_buffers;           /* how many packed gradients may be in flight at the same time */
    int n_forwards, n_backwards;  /* calls of the program */
    /* (n_backwards, n_params) buffers of whole gradients; -1: none, or it goes straight to the shard */
    int *grads;
    int n_params, n_groups, n_buffers, n_entries, n_accesses;
    size_t buffers_room, entries_room, groups_room, accesses_room; /* capacities of the lists */
    size_t arena_bytes;
    size_t gradient_bytes; /* the first of these: the groups' gradient shards, in the groups' order */
    size_t class_bytes[PLAN_N_CLASSES]; /* the most that each class takes at any one time */
};

/**
 * Make the plan of `graph` for the tree of `root`, from the bytes that prepare() noted in the graph's
 * operations. `graph` and the tree are borrowed until plan_fini(), which must be called after a failure as
 * well.
 *   FSDP_ERR_ARG          settings of units contradict each other, or a parameter is too large
 *   FSDP_ERR_UNSUPPORTED  a parameter is sharded along a dimension that W does not divide
 *   FSDP_ERR_NOMEM        no memory for the plan, or the arena does not fit an address space
 */
enum fsdp_status plan_make(struct plan *plan, const struct graph *graph, const struct fsdp_module *root,
                           const struct plan_options *options, struct fsdp_err *err);
/** Free everything that the plan owns, and leave it empty. */
void plan_fini(struct plan *plan);

/**
 * Set reached[i] for each parameter i that backward reaches and that requires a gradient. `reached` has
 * n_params elements, all false on entry; the plan needs its list of parameters only.
 */
enum fsdp_status plan_find_reached(const struct plan *plan, bool *reached, struct fsdp_err *err);

/**
 * The buffer of parameter `param`'s whole gradient in the backward that `entry` belongs to; -1: it has none.
 */
int plan_grad(const struct plan *plan, const struct plan_entry *entry, int param);

/** Bytes of a group's whole parameters, both parts together. */
size_t plan_whole_bytes(const struct plan_group *group);
/** Returns the byte at which a part begins in one block that holds both parts. */
size_t plan_part_offset(const struct plan_group *group, enum plan_part part);

/**
 * The least that an entry can move: bytes that it reads and writes on this rank's device, each buffer once.
 * Tokens are not counted. A collective counts the bytes of its buffers. A value between two operations that
 * run as one pass counts as written. 0: the entry does no work.
 */
uint64_t plan_entry_bytes(const struct plan *plan, const struct plan_entry *entry);

/** The number of the parameter in plan->params; -1: it is not in the tree. */
int plan_param_index(const struct plan *plan, const struct fsdp_parameter *parameter);

/** The plan as text, one line for each entry; the caller frees it. NULL: out of memory. */
char *plan_text(const struct plan *plan);

/**
 * A hash of what the plan runs and in which order: kind, stream, subject, call and micro-steps of each entry.
 * Ranks with equal hashes make the same collectives in the same order. Sizes are not part of it, as the ranks
 * of a tensor group may have unequal parts.
 */
uint64_t plan_hash(const struct plan *plan);

/** Returns the path of the group's first unit; "(root)" for the root. */
const char *plan_unit_name(const struct plan *plan, int group);

/*
 * The steps of plan_make(), in this order, each in a file of its own. Their errors are those of plan_make().
 */

/** groups.c: form groups of parameters, and lay out their rows. */
enum fsdp_status plan_form_groups(struct plan *plan, const struct fsdp_module *root, struct fsdp_err *err);
/** passes.c: write the entries, with the buffers that they name. */
enum fsdp_status plan_write_program(struct plan *plan, struct fsdp_err *err);
/** fuse.c: mark neighbours that run as one pass. Never fails. */
enum fsdp_status plan_fuse_neighbours(struct plan *plan, struct fsdp_err *err);
/** gradients.c: lay gradient shards at the beginning of the arena. */
enum fsdp_status plan_lay_gradients(struct plan *plan, struct fsdp_err *err);
/** entry.c: list which entry reads and writes which buffer. */
enum fsdp_status plan_list_accesses(struct plan *plan, struct fsdp_err *err);
/** share.c: find buffers that can share a place. */
enum fsdp_status plan_share_buffers(struct plan *plan, struct fsdp_err *err);
/** place.c: give every buffer its place in the arena. */
enum fsdp_status plan_place_buffers(struct plan *plan, struct fsdp_err *err);
/** order.c: find which entries wait for entries of other streams. */
enum fsdp_status plan_order_streams(struct plan *plan, struct fsdp_err *err);

#endif
