/*
 * The settings of all units of a tree, as three hashes: equal hashes mean equal plans. A plan is made from
 * the settings at that moment. Setters may be called again between two steps; then the next step needs
 * another plan.
 */
#ifndef PLAN_POLICIES_H
#define PLAN_POLICIES_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/model.h>

#include "shard_runtime/core/module.h"

struct policies {
    /* settings that decide where parameters are, optimizer state and process groups: they cannot change */
    uint64_t settled;
    uint64_t planned; /* settings that decide the plan of a step, together with `flags` */
    /*
     * Settings that decide what micro-steps before the last one of a step do: set_requires_gradient_sync,
     * set_requires_all_reduce and set_reshard_after_backward. The last micro-step does all of it, whatever
     * they say.
     */
    uint64_t flags;
};

/** Reads the policies of all units of the tree. `sync` is for units whose policy does not set it. Pure. */
struct policies policies_read(const struct fsdp_module *root, enum fsdp_gradient_sync sync);

enum policies_verdict {
    POLICIES_AS_PLANNED, /* the plan follows the policies */
    POLICIES_NEED_PLAN,  /* a step begins here, and needs a new plan */
    /*
     * a step has begun with other settings and goes on with them; an error if its last micro-step is still to
     * come
     */
    POLICIES_TOO_LATE,
    POLICIES_SETTLED, /* what cannot change has changed */
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
