/*
 * What to change in a job that does not fit: each key that saves memory is tried on the plan itself, and what it
 * costs is read from the plan it gives. A key that this build does not support is not advised.
 */
#ifndef TRAINER_ADVICE_H
#define TRAINER_ADVICE_H

#include <stdbool.h>

#include "shard_runtime/trainer/forecast.h"

enum { ADVICE_MAX = 16, ADVICE_WORDS_BYTES = 96 };

/* What a change does to the numbers that training gives. The order is that of preference. */
enum advice_effect {
    ADVICE_SAME_BITS,     /* nothing */
    ADVICE_ROUNDING,      /* sums are taken in another order */
    ADVICE_PRECISION,     /* numbers are kept in fewer bits */
    ADVICE_MORE_HARDWARE, /* rounding too; and nodes that may not be there */
    ADVICE_LARGER_STEP    /* a step has more sequences: training differs */
};

struct advice {
    enum advice_effect effect;
    int place;                        /* among changes of one effect: the smaller change first */
    char setting[ADVICE_WORDS_BYTES]; /* "parallel.reshard_after_forward=true": what --set takes */
    const char *cost;                 /* beside the bytes sent, in words; NULL: nothing else */
    size_t total;                     /* bytes of a rank with this setting alone, or with those before it */
    int ranks_per_host;               /* of that rank's node */
    double share;        /* that, on the cpu by the ranks that share what a rank of the job has */
    uint64_t sent_bytes; /* of a rank and step */
    bool fits;
};

struct advice_list {
    struct advice alone[ADVICE_MAX]; /* each by itself, in the order of advice_compare() */
    int n_alone;
    struct advice together
        [ADVICE_MAX]; /* one after the other until it fits or nothing helps (then the last does not fit);
                                           empty when one alone does */
    int n_together;
    bool left_out; /* a model of many blocks: not all changes were tried */
};

/**
 * `job_json` as `now` was made from; `limit` in bytes of a rank. `node_ranks`: ranks that a node can have (its GPUs, or its
 * CPUs); more are never proposed, and 0, unknown, proposes none. Ranks on the cpu share their node's memory: more of them
 * fit if all of them take no more than now->ranks_per_host times `limit`.
 */
enum fsdp_status advice_find(struct advice_list *list, const char *job_json, const struct forecast *now,
                             size_t limit, uint64_t node_ranks, struct fsdp_err *err);

/** For qsort(): those that fit first, of these the one that changes the numbers least, then the smallest change; of the rest
 * the one that saves most first. */
int advice_compare(const void *left, const void *right);

/** In words, for the report. */
const char *advice_effect_words(enum advice_effect effect);

#endif
