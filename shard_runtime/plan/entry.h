/*
 * One entry of a plan: a piece of work, on one stream, that uses buffers of the arena.
 *
 * Each kind of entry has a struct of its own in the union of struct plan_entry; the tag is `kind`. A field
 * that names a buffer holds its number in plan->buffers, or -1 for none. The table in entry.c lists these
 * fields for each kind and says how the entry uses the buffer. Everything that asks what an entry reads,
 * writes, moves or sends reads that table.
 */
#ifndef PLAN_ENTRY_H
#define PLAN_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "shard_runtime/plan/graph.h"

struct plan;

/* In the order of a step; PLAN_COMPLETE is the last. */
enum plan_entry_kind {
    PLAN_COPY_IN,     /* host memory to device: this rank's shards of a group */
    PLAN_COPY_SUM_IN, /* host memory to device: the gradient shards of earlier micro-steps */
    PLAN_AMAX,        /* the largest size in each coded parameter of a group, over all ranks */
    PLAN_GATHER,      /* all-gather of a group's rows */
    PLAN_UNPACK,      /* gathered rows to whole parameters, each contiguous */
    PLAN_SLICE,    /* this rank's part of the whole parameters, cut over k ranks: backward gathers from it */
    PLAN_RESHARD,  /* the whole parameters end; no work */
    PLAN_FORWARD,  /* the forward of an operation */
    PLAN_LOSS,     /* cross-entropy of a forward's result and, in training, the gradient of the result */
    PLAN_BACKWARD, /* the backward of an operation */
    PLAN_PACK,     /* whole gradients to one row a rank, padded with zeros */
    PLAN_REDUCE,   /* reduce-scatter of packed rows over the ranks that shard */
    PLAN_ALL_REDUCE, /* all-reduce of this rank's row, or of its gradient shards, over the replicas */
    PLAN_STORE,      /* this rank's row converted to float32 in the gradient shards, or added to them */
    PLAN_COPY_OUT,   /* device to host memory: gradient shards */
    PLAN_COMPLETE,   /* the gradient shards are final: the unit's hook is called */
};

/* Which micro-steps of a step an entry takes part in. */
enum plan_when { PLAN_ALWAYS, PLAN_FIRST, PLAN_LAST };

enum plan_stream {
    PLAN_COMPUTE,
    PLAN_GATHERS,
    PLAN_REDUCES,
    PLAN_ALL_REDUCES,
    PLAN_TENSOR,     /* operations that are collectives of a tensor group */
    PLAN_COPIES_IN,  /* from host memory */
    PLAN_COPIES_OUT, /* to host memory */
    PLAN_N_STREAMS
};

/*
 * The whole parameters of a group are in two buffers with different lifetimes: those that no operation reads
 * in backward, and all others.
 */
enum plan_part { PLAN_FORWARD_ONLY, PLAN_BOTH_WAYS, PLAN_N_PARTS };

/** Only for groups that offload. One of the two buffers is set. */
struct plan_copy_in {
    int shard;    /* written: this rank's row, (row_elems) float32 */
    int gathered; /* written: this rank's row in the buffer of the gather, which needs no conversion */
};

/** Only for groups that offload. */
struct plan_copy_sum_in {
    int sum;   /* written: (grad_row_elems) float32 */
    int after; /* not read or written; this entry waits for every earlier use of it */
};

struct plan_amax {
    int shard; /* read: the copy of this rank's shards; -1: the shards are on the device */
    int amax;  /* written: a float for each coded parameter of the group */
};

struct plan_gather {
    /*
     * read: the slice that PLAN_SLICE kept, which is gathered over k ranks; -1: shards are gathered over W
     * ranks
     */
    int slice;
    int shard; /* read: the copy of this rank's shards; -1: no copy */
    /*
     * read: the sizes by which float8 codes are made; -1: there are no codes, or the slice has them already
     */
    int amax;
    int gathered;  /* written: (k, a row) */
    bool in_place; /* PLAN_COPY_IN wrote this rank's row of `gathered` */
    int k;         /* rows in `gathered` */
};

struct plan_unpack {
    int gathered; /* read: k rows; -1: in a world of one, the shards are unpacked */
    /* read, if `gathered` is -1: the copy of this rank's shards; -1: the shards are on the device */
    int shard;
    int amax;                /* read: the sizes by which float8 codes were made; -1: there are no codes */
    int whole[PLAN_N_PARTS]; /* written; -1: the part is empty */
    int k;                   /* rows in `gathered` */
};

struct plan_slice {
    int whole[PLAN_N_PARTS]; /* read */
    int amax;                /* read: the sizes by which float8 codes are made; -1: there are no codes */
    int slice;               /* written */
};

struct plan_reshard {
    /*
     * freed: the part PLAN_BOTH_WAYS of the whole parameters; the other part is free after its last use in
     * forward
     */
    int whole;
};

/** The fields that a forward and a backward share; `index` is the operation's number. */
struct plan_operation {
    int input[GRAPH_MAX_INPUTS]; /* read; -1: it is the model's input, or a backward that does not need it */
    /*
     * read: the buffer of whole parameters that has the parameter; -1: the shard itself is read, or a
     * backward needs no parameters
     */
    int params[GRAPH_MAX_PARAMS];
    int saved[GRAPH_MAX_SAVED]; /* written by forward, read by backward */
    int scratch;                /* written */
    int output;                 /* written by forward, read by a backward that needs it */
    bool again;                 /* a forward that runs a second time because backward needs its output */
    /* Two neighbours that run as one pass. The first does all the work and uses the buffers of both. */
    bool with_next, with_before;
};

struct plan_backward {
    struct plan_operation op;
    int d_output;                  /* read */
    int d_input[GRAPH_MAX_INPUTS]; /* written; -1: no gradient is needed */
    /* written, then added to d_input; -1: the operation writes d_input, or adds to it, by itself */
    int temporary[GRAPH_MAX_INPUTS];
    int d_param[GRAPH_MAX_PARAMS];      /* written; -1: the gradient goes to its shard, or there is none */
    bool add_d_input[GRAPH_MAX_INPUTS]; /* adds to what an earlier entry wrote */
    bool add_d_param[GRAPH_MAX_PARAMS]; /* adds to what an earlier entry of this micro-step wrote */
    /* a later backward, whose bias gradient (d_param[1]) this entry writes as well; 0: none */
    int bias_entry;
    bool bias_before; /* this entry's bias gradient was written by an earlier entry */
};

/** `index` is the forward's number. */
struct plan_loss {
    int logits;   /* read */
    int d_logits; /* written; -1: no training */
};

struct plan_pack {
    /*
     * written: (W, grad_row_elems) of reduce_dtype. The entry reads the group's whole gradients, plan_grad()
     */
    int packed;
};

struct plan_reduce {
    int packed;       /* read; this rank's row is written, unless into_shards */
    bool into_shards; /* the result goes to the group's gradient shards */
};

struct plan_all_reduce {
    int packed; /* read and written: this rank's row; -1: the entry reduces gradient shards */
    int sum;    /* read and written: the gradient shards, where they are a copy on the device; -1: no copy */
    int after;  /* not read or written; this entry waits for every earlier use of it */
    bool calls_hook; /* the unit's hook is called after the reduction */
};

struct plan_store {
    int packed;      /* read: this rank's row */
    int sum;         /* written: (grad_row_elems) float32; -1: the group's gradient shards are written */
    bool adds;       /* adds to the sums of earlier micro-steps of the step */
    bool calls_hook; /* the unit's hook is called before the row is stored */
};

/** Only for groups that offload. One of the two buffers is set. */
struct plan_copy_out {
    int packed; /* read: this rank's row */
    int sum;    /* read: (grad_row_elems) float32 */
};

struct plan_complete {
    int after; /* not read or written; this entry waits for every earlier use of it */
};

struct plan_entry {
    enum plan_entry_kind kind;
    enum plan_when when;
    enum plan_stream stream;
    /* number of the group; operations and the loss have numbers of their own, see their structs */
    int index;
    int call; /* number of the call: 0 ... n_forwards - 1 are the forwards, then the backwards */
    /* number of the backward to which the entry belongs; each backward is a micro-step; 0 in forwards */
    int backward;
    union {
        struct plan_copy_in copy_in;
        struct plan_copy_sum_in copy_sum_in;
        struct plan_amax amax;
        struct plan_gather gather;
        struct plan_unpack unpack;
        struct plan_slice slice;
        struct plan_reshard reshard;
        struct plan_operation op;  /* PLAN_FORWARD, and the beginning of PLAN_BACKWARD */
        struct plan_backward back; /* PLAN_BACKWARD */
        struct plan_loss loss;
        struct plan_pack pack;
        struct plan_reduce reduce;
        struct plan_all_reduce all_reduce;
        struct plan_store store;
        struct plan_copy_out copy_out;
        struct plan_complete complete;
    };
    int first_access, n_accesses; /* in plan->accesses */
    int waits[PLAN_N_STREAMS];    /* the entry of that stream to wait for, or -1 */
    bool records;                 /* some entry of another stream waits for this one */
};

/** One use of a buffer by an entry. Neither read nor written: the buffer must only stay as it is. */
struct plan_access {
    int entry, buffer;
    bool reads, writes;
    /* the entry moves 1 / share of the buffer; 0: it moves nothing, or a part that moved.c counts */
    int share;
};

/** The collective that an entry is. */
enum plan_collective {
    PLAN_COLLECTIVE_NONE,
    PLAN_COLLECTIVE_ALL_GATHER,
    PLAN_COLLECTIVE_REDUCE_SCATTER,
    PLAN_COLLECTIVE_ALL_REDUCE
};

/**
 * Up to two collectives of an entry: each over n_ranks, of a buffer of size_bytes; n_ranks 0 or 1 sends
 * nothing.
 */
struct plan_sent {
    struct {
        uint64_t n_ranks, size_bytes;
    } over[2];
};

/** Sets every buffer and every wait of the entry to -1. `kind` must be set already. */
void plan_entry_unset(struct plan_entry *entry);

/** Is it the forward or the backward of an operation? */
static inline bool plan_is_operation(const struct plan_entry *entry)
{
    return entry->kind == PLAN_FORWARD || entry->kind == PLAN_BACKWARD;
}

/** Is it a forward that runs a second time because backward needs its output? */
static inline bool plan_runs_again(const struct plan_entry *entry)
{
    return entry->kind == PLAN_FORWARD && entry->op.again;
}

/** Is the unit's hook on reduced gradients called in it? */
static inline bool plan_calls_hook(const struct plan_entry *entry)
{
    return (entry->kind == PLAN_ALL_REDUCE && entry->all_reduce.calls_hook) ||
           (entry->kind == PLAN_STORE && entry->store.calls_hook);
}

/**
 * Returns the collective that the entry runs; for an operation it depends on the operation's kind. Other
 * ranks wait for every entry that is a collective.
 */
enum plan_collective plan_entry_collective(const struct plan *plan, const struct plan_entry *entry);

/** Returns sizes and ranks of the entry's collective; all zero for other entries. */
struct plan_sent plan_entry_sent(const struct plan *plan, const struct plan_entry *entry);

/** "gather", "forward", ... */
const char *plan_entry_name(enum plan_entry_kind kind);

/**
 * Returns the subject of the entry: the operation's name, "cross_entropy", or the path of the group's unit as
 * in plan_unit_name().
 */
const char *plan_entry_subject(const struct plan *plan, const struct plan_entry *entry);

/** "compute", "gathers", ... */
const char *plan_stream_name(enum plan_stream stream);

#endif
