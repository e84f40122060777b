/*
 * What the units of a tree were told, as three numbers: equal ones stand for equal plans. A plan is made from what they are told
 * when it is made; setters may be called again between two steps, and then the next step needs another.
 */
#ifndef PLAN_POLICIES_H
#define PLAN_POLICIES_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/model.h>

#include "shard_runtime/core/module.h"

struct policies {
    uint64_t
        settled; /* what parameters' places, optimizer state and process groups follow from: it cannot change */
    uint64_t planned; /* what the plan of a step follows from, the next one excepted */
    uint64_t
        flags; /* what a step's micro-steps but the last do: set_requires_gradient_sync, set_requires_all_reduce and
                         set_reshard_after_backward. The last one does all of it, whatever they say */
};

/** `sync` is what units do that were told nothing about it. Pure. */
struct policies policies_read(const struct fsdp_module *root, enum fsdp_gradient_sync sync);

enum policies_verdict {
    POLICIES_AS_PLANNED, /* the plan does what they say */
    POLICIES_NEED_PLAN,  /* it is to be made anew: a step begins here */
    POLICIES_TOO_LATE, /* the step that is under way goes on as it began: they are an error before its last micro-step */
    POLICIES_SETTLED, /* they never can be followed */
};

/**
 * What to do about `now`, where the plan was made from `then`.
 *   within   some micro-steps of the step are done
 *   is_last  all that are left run in this call, and
 *   single   they are one
 */
enum policies_verdict policies_compare(const struct policies *now, const struct policies *then, bool within,
                                       bool is_last, bool single);

#endif
