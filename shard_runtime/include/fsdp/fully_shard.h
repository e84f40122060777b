/*
 * FSDP2's fully_shard: the parameters of a module that no deeper fully_shard took become one group, gathered
 * by one all-gather before the module's forward, freed after it, gathered again for backward, and whose
 * gradients leave by one reduce-scatter. Apply it bottom-up: to each block, then to the root, which takes
 * what is left.
 */
#ifndef FSDP_FULLY_SHARD_H
#define FSDP_FULLY_SHARD_H

#include <stdbool.h>

#include <fsdp/module.h>

FSDP_BEGIN_DECLS

enum fsdp_reshard {
    FSDP_RESHARD_AUTO, /* true, but for the root, whose parameters backward needs at once */
    FSDP_RESHARD_TRUE,
    FSDP_RESHARD_FALSE, /* keep the parameters gathered until backward is done: more memory, one all-gather
                           less */
};

struct fsdp_fully_shard_options {
    enum fsdp_reshard reshard_after_forward;
};

/**
 * Make `module` a unit of sharding. `options` may be NULL: the defaults.
 *   FSDP_ERR_ARG  the module was given before, or is a container without a forward; or building the tree
 * failed earlier: the message says how
 */
FSDP_API enum fsdp_status fsdp_fully_shard(struct fsdp_module *module,
                                           const struct fsdp_fully_shard_options *options,
                                           struct fsdp_err *err);

/** Change what fsdp_fully_shard() was told, for the module and, with `recurse`, all units below. Before the
 * model. */
FSDP_API void fsdp_module_set_reshard_after_forward(struct fsdp_module *module, bool reshard, bool recurse);
/** False: parameters stay gathered from one micro-step to the next, and are freed by the step's last. Default
 * true. */
FSDP_API void fsdp_module_set_reshard_after_backward(struct fsdp_module *module, bool reshard, bool recurse);

FSDP_END_DECLS

#endif
