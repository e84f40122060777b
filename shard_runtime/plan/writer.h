/*
 * Writing a program, inside plan/ only: what is known while entries are being appended.
 *   passes.c     walks through the recording, forwards and backwards
 *   program.c    writes the entries of operations; owns the lists of buffers and entries
 *   life.c       writes the entries of groups around them; owns struct group_life
 *   recompute.c  writes forwards again before the backward that needs them
 */
#ifndef PLAN_WRITER_H
#define PLAN_WRITER_H

#include "shard_runtime/plan/plan.h"

/* Are a group's parameters whole at this point of the program? PENDING: their gather has begun. */
enum group_state { SHARDED, PENDING, WHOLE };

/* The state of a group while the program is being written. Buffers are numbers; -1: none. */
struct group_life {
    enum group_state state;
    int gathered, whole[PLAN_N_PARTS]; /* buffers of the gather that is pending or done */
    /* the copy of the shards from which parameters are gathered or unpacked */
    int shard;
    int copied_out; /* the buffer that its gradient shards in host memory were last copied from */
    int amax;       /* largest sizes of coded parameters, from before the first gather on */
    /* the buffer that was kept since forward, from which backward gathers; -1: it gathers the shards */
    int slice;
    int k;                /* rows of `gathered` */
    int first_visit;      /* the earliest visit that the backward being written reaches; -1: none */
    bool gathered_before; /* true: the program written so far gathers the group at least once */
    /* the group is finished after the root, because no gradient leaves it that would show when it is done */
    bool last;
};

struct writer {
    struct plan *plan;
    const struct graph *graph;
    struct group_life *life; /* of each group */
    int *visit_group;        /* of each visit */
    /* for each visit: is it the first, or the last, of a run? See find_runs() in passes.c */
    bool *opens, *closes;
    int *enters;                     /* visits in order of being entered */
    int *leaves;                     /* visits in order of being left */
    int *value_buffer, *grad_buffer; /* of each value; -1: none yet */
    int (*saved)[GRAPH_MAX_SAVED];   /* of each operation */
    bool *settled;                   /* (for each operation) it is decided whether it is computed again */
    /* the first operation whose backward reads a parameter that is not gathered then; NULL: none */
    const struct graph_op *unreadable;
    int call, backward; /* of the entries that are being written */
    bool out_of_memory; /* sticky: from then on nothing is appended */
};

/**
 * Append a buffer of size_bytes that holds `what` number `index`. Returns its number, or -1 if memory ran
 * out.
 */
int writer_add_buffer(struct writer *w, enum plan_what what, size_t index, enum plan_class class,
                      size_t size_bytes);
/**
 * An entry of the call that is being written, with no buffer set. It is part of the program once it is
 * appended.
 */
struct plan_entry writer_entry(const struct writer *w, enum plan_entry_kind kind, int index,
                               enum plan_stream stream);
/** Append a copy of `entry`; out_of_memory is set if there is no room. */
void writer_append(struct writer *w, const struct plan_entry *entry);

/** Write the forward of operation `index`. From here on its output, and what it saves, are in new buffers. */
void writer_forward(struct writer *w, int index, bool again);
/**
 * Write the loss of forward number `forward`; in training it also writes the gradient of the forward's
 * result.
 */
void writer_loss(struct writer *w, int forward);
/** Write the backward of operation `index`, if the loss depends on it and anything before it learns. */
void writer_backward(struct writer *w, int index);

/**
 * Call it when backward reaches the last operation of a region of activation checkpointing. Append its
 * forward operations again, as far as its backward reads their results. So no buffer of the region is kept
 * since forward, except its input and, in a selective region, the outputs of costly operations.
 */
void recompute_region(struct writer *w, const struct graph_region *region);
/**
 * Call it before the backward of operation `index` is written. Writes again, once, the forwards of the cheap
 * operations whose outputs that backward reads. Their own backwards keep what these forwards read, so nothing
 * else is kept for them.
 */
void recompute_cheap(struct writer *w, int index);
/** Call it before the two functions above: marks the operations that recompute_cheap() must leave alone. */
void recompute_settle_regions(struct writer *w);

/* The functions of life.c do nothing for a group that does not need what they write. */

/** Begin to gather, if the group is sharded. */
void life_issue_gather(struct writer *w, int group);
/** Makes the group's parameters whole: gathers them, if that has not begun, and unpacks them. */
void life_need_whole(struct writer *w, int group);
/** Frees the group's parameters after forward. A group that keeps slices writes its slice first. */
void life_reshard_after_forward(struct writer *w, int group);
/** Frees the group's parameters, in the micro-steps that `when` names. */
void life_reshard(struct writer *w, int group, enum plan_when when);
/** The group's gradients are complete: frees its parameters, then reduces the gradients. */
void life_finish(struct writer *w, int group);
/** Do the group's parameters stay whole from one backward of a step to the next? */
bool life_stays(const struct writer *w, int group);
/** The buffer in which parameter `index` of the plan is whole; -1: it is read from its shard. */
int life_whole_of(const struct writer *w, int index);
/** The buffer of the parameter's gradient, appended on first use; -1: the gradient goes to its shard. */
int life_grad_of(struct writer *w, int index);

#endif
