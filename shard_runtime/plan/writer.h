/*
 * Writing a program, inside plan/ only: what is known while entries are being appended. passes.c goes through the
 * recording, program.c writes the operations, life.c the life of each group's parameters and gradients around them.
 */
#ifndef PLAN_WRITER_H
#define PLAN_WRITER_H

#include "shard_runtime/plan/plan.h"

enum group_state { SHARDED, PENDING, WHOLE };

/* What is known of a group while the program is being written. */
struct group_life {
    enum group_state state;
    int gathered, whole[PLAN_N_PARTS]; /* buffers of the gather that is pending or done */
    int shard;                         /* the copy of its shards that it is gathered or unpacked from; -1 */
    int copied_out;                    /* what its gradient shards in host memory were last copied from; -1 */
    int amax;        /* largest sizes, found before the first gather; -1: not yet, or of nothing */
    int slice;       /* what is kept since forward, to gather from; -1: the shards */
    int k;           /* rows of `gathered` */
    int first_visit; /* of those that the backward being written comes to: the last one in it; -1 */
    bool gathered_before;
    bool last; /* finished behind the root: no gradient leaves it that would say when it is done */
};

struct writer {
    struct plan *plan;
    const struct graph *graph;
    struct group_life *life;
    int *visit_group;     /* of each visit */
    bool *opens, *closes; /* each visit: is it the first, the last, of a run in which its list's modules all
                                        ran? Of a unit alone both. */
    int *enters;          /* visits in order of being entered */
    int *leaves;          /* visits in order of being left */
    int *value_buffer, *grad_buffer; /* of each value; -1 */
    int (*saved)[GRAPH_MAX_SAVED];   /* of each operation */
    bool *settled;                   /* of each operation: what it gave is where it is, made again or kept */
    const struct graph_op *unreadable; /* the first whose backward would read what is not gathered */
    int call, backward;                /* of the entries that are being written */
    bool out_of_memory;
};

/** Append a buffer; its number, or -1 with out_of_memory set. */
int writer_add_buffer(struct writer *w, enum plan_what what, size_t index, enum plan_class class,
                      size_t size_bytes);
/** Append an entry with every buffer unset; NULL with out_of_memory set. Valid until the next one. */
struct plan_entry *writer_add_entry(struct writer *w, enum plan_entry_kind kind, int index,
                                    enum plan_stream stream);

/** Write the forward of operation `index`: its value and what it saves are in new buffers from here on. program.c. */
void writer_forward(struct writer *w, int index, bool again);
/** The loss of forward number `forward`, and when training the gradient of its result. */
void writer_loss(struct writer *w, int forward);
/** The backward of operation `index`, if one reaches it. */
void writer_backward(struct writer *w, int index);

/**
 * recompute.c: backward has come to the end of a region. Run again what its backward reads, so that no buffer of the
 * region is kept from forward to here but its input and, of a selective one, what was costly.
 */
void recompute_region(struct writer *w, const struct graph_region *region);

/**
 * recompute.c: before the backward of operation `index`. What it reads and cheap operations gave is made again, once:
 * their own backward keeps what they need for it, so that between forward and here nothing is kept for them.
 */
void recompute_cheap(struct writer *w, int index);
/** Before any of these: what regions make again is none of it. */
void recompute_settle_regions(struct writer *w);

/* life.c. Each does nothing for a group that needs none of it. */

/** Begin to gather, if the group is sharded. */
void life_issue_gather(struct writer *w, int group);
/** From here on its parameters are whole. */
void life_need_whole(struct writer *w, int group);
/** Free them after forward: but for a slice, where the group keeps one. */
void life_reshard_after_forward(struct writer *w, int group);
/** Free them. */
void life_reshard(struct writer *w, int group, enum plan_when when);
/** Its gradients are complete: free its parameters first, then reduce. */
void life_finish(struct writer *w, int group);
/** Do its parameters stay whole from one backward of a step to the next? */
bool life_stays(const struct writer *w, int group);
/** The buffer in which parameter `index` of the plan is whole, or -1: it is read where its shard is. */
int life_whole_of(const struct writer *w, int index);
/** The buffer of the parameter's gradient, made when there is none yet, or -1: it goes where its shard is. */
int life_grad_of(struct writer *w, int index);

#endif
