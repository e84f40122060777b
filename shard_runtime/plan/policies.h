/*
 * What the units of a tree were told, as three hashes: equal hashes stand for equal plans. A plan is made
 * from what units are told at that moment. Setters may be called again between two steps; then the next step
 * needs another plan.
 */
#ifndef PLAN_POLICIES_H
#define PLAN_POLICIES_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/model.h>

#include "shard_runtime/core/module.h"

struct policies {
    uint64_t settled; /* decides parameters' places, optimizer state and process groups: it cannot change */
    uint64_t planned; /* decides the plan of a step, together with `flags` */
    /*
     * Decides what the micro-steps of a step do before the last one: set_requires_gradient_sync,
     * set_requires_all_reduce and set_reshard_after_backward. The last micro-step does all of it, whatever
     * they say.
     */
    uint64_t flags;
};

/**
 * Read the policies of all units of the tree. `sync` holds for units that were told nothing about it. Pure.
 */
struct policies policies_read(const struct fsdp_module *root, enum fsdp_gradient_sync sync);

enum policies_verdict {
    POLICIES_AS_PLANNED, /* the plan follows the policies */
    POLICIES_NEED_PLAN,  /* a step begins here, and needs a new plan */
    POLICIES_TOO_LATE, /* a step is under way and goes on as it began; an error before its last micro-step */
    POLICIES_SETTLED,  /* what cannot change has changed */
};

/**
 * Decide what to do about the policies `now`, if the plan was made from `then`.
 *   within   some micro-steps of the step are done
 *   is_last  all micro-steps that are left run in this call
 *   single   this call runs one micro-step
 */
enum policies_verdict policies_compare(const struct policies *now, const struct policies *then, bool within,
                                       bool is_last, bool single);

#endif
