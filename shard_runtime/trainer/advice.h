/*
 * What to change in a job that does not fit: each key that saves memory is tried on the plan itself, and what it
 * costs is read from the plan it gives. A key that this build does not support is not advised.
 */
#ifndef TRAINER_ADVICE_H
#define TRAINER_ADVICE_H

#include <stdbool.h>

#include "shard_runtime/trainer/forecast.h"

enum { ADVICE_MAX = 16, ADVICE_WORDS_BYTES = 96 };

struct advice {
    char setting[ADVICE_WORDS_BYTES]; /* "parallel.reshard_after_forward=true": what --set takes */
    const char *cost;                 /* beside the bytes sent, in words; NULL: nothing else */
    size_t total;                     /* bytes of a rank with this setting alone, or with those before it */
    uint64_t sent_bytes;              /* of a rank and step */
    bool fits;
};

struct advice_list {
    struct advice alone[ADVICE_MAX]; /* each by itself, those that save most first */
    int n_alone;
    struct advice together
        [ADVICE_MAX]; /* one after the other until it fits or nothing helps (then the last does not fit);
                                           empty when one alone does */
    int n_together;
    bool left_out; /* a model of many blocks: not all changes were tried */
};

/** `job_json` as `now` was made from; `limit` in bytes of a rank. */
enum fsdp_status advice_find(struct advice_list *list, const char *job_json, const struct forecast *now,
                             size_t limit, struct fsdp_err *err);

#endif
