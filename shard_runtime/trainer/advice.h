/*
 * Advice on what to change in a job that does not fit in memory. Each key that may save memory is tried on a
 * plan of the changed job, and its costs are read from that plan. A key that this build does not support is
 * not advised.
 */
#ifndef TRAINER_ADVICE_H
#define TRAINER_ADVICE_H

#include <stdbool.h>

#include "shard_runtime/trainer/forecast.h"

enum { ADVICE_MAX = 16, ADVICE_WORDS_BYTES = 96 };

/* How a change affects the numbers that training computes. Earlier values are preferred. */
enum advice_effect {
    ADVICE_SAME_BITS,     /* all results keep the same bits */
    ADVICE_ROUNDING,      /* sums are computed in another order */
    ADVICE_PRECISION,     /* numbers are stored in fewer bits */
    ADVICE_MORE_HARDWARE, /* rounding changes, and the change needs nodes that may not exist */
    ADVICE_LARGER_STEP    /* a step has more sequences: training differs */
};

struct advice {
    enum advice_effect effect;
    int place;                        /* order among changes of one effect: smaller changes first */
    char setting[ADVICE_WORDS_BYTES]; /* argument for --set: "parallel.reshard_after_forward=true" */
    const char *cost;                 /* the cost in words, in addition to the bytes sent */
    /* bytes per rank with this setting, and with those before it in a combination */
    size_t total;
    int ranks_per_host; /* ranks per node with this setting */
    /* `total`; on the cpu scaled to the memory that one rank of the original job has */
    double share;
    uint64_t sent_bytes; /* bytes that one rank sends in a step */
    bool fits;
};

struct advice_list {
    /* changes that each save memory alone, in the order of advice_compare() */
    struct advice alone[ADVICE_MAX];
    int n_alone;
    struct advice together
        /*
         * changes to make together, until the job fits or nothing more helps (the last entry shows then that
         * the job does not fit). Empty if one change alone is enough
         */
        [ADVICE_MAX];
    int n_together;
    bool left_out; /* not all changes were tried, because the model has many blocks */
};

/**
 * Finds changes that make a job fit.
 *
 *   job_json    the job that the forecast `now` was made from
 *   limit       bytes that a rank may use
 *   node_ranks  ranks that a node can have (its GPUs, or its CPUs); more are never proposed. 0: not known,
 *               and more ranks per node are not proposed
 *
 * Ranks on the cpu share their node's memory. More of them fit if all of them together need no more than
 * now->ranks_per_host times `limit`.
 */
enum fsdp_status advice_find(struct advice_list *list, const char *job_json, const struct forecast *now,
                             size_t limit, uint64_t node_ranks, struct fsdp_err *err);

/**
 * Order of advice for qsort(). Changes that fit come first: the least effect on the numbers, then the
 * smallest change. Changes that do not fit come after them: the one that saves most memory first.
 */
int advice_compare(const void *left, const void *right);

/** The effect in words, for the report. */
const char *advice_effect_words(enum advice_effect effect);

#endif
