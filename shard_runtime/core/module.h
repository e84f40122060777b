/*
 * What a module is inside (<fsdp/module.h> is what users see). A tree owns its modules and parameters; the
 * first thing that goes wrong while it is built is kept at its root.
 */
#ifndef CORE_MODULE_H
#define CORE_MODULE_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/activation_checkpoint.h>
#include <fsdp/fully_shard.h>
#include <fsdp/module.h>

struct fsdp_parameter {
    char *name; /* with the path of its module in front */
    int n_dims;
    size_t shape[FSDP_MAX_DIMS];
    size_t n_elems, row_elems; /* row_elems = n_elems / shape[0] */
    enum fsdp_init init;
    const struct fsdp_module *owner;
};

enum unit_sync { UNIT_SYNC_AS_MODEL, UNIT_SYNC_EVERY, UNIT_SYNC_LAST };

/* What a unit of sharding was told: fsdp_fully_shard() and the setters. */
struct unit_policy {
    enum fsdp_reshard reshard_after_forward;
    struct fsdp_mixed_precision_policy precision;
    struct fsdp_device_mesh *mesh; /* NULL: all ranks */
    enum unit_sync gradient_sync;
    bool keep_after_backward, defers_all_reduce, force_sum;
    double divide_factor; /* 0: the number of ranks */
    fsdp_all_reduce_hook_fn hook;
    void *hook_user;
};

struct fsdp_module {
    char *name, *path;
    struct fsdp_module *parent, *root;
    struct fsdp_module **children;
    size_t n_children, children_capacity;
    struct fsdp_parameter **parameters;
    size_t n_parameters, parameters_capacity;
    fsdp_forward_fn forward;
    void *user;
    void *owned;  /* freed with the module: attributes of library modules */
    bool sharded; /* fsdp_fully_shard() was called on it */
    struct unit_policy policy;
    enum fsdp_activation_checkpoint checkpoint;
    struct fsdp_err err; /* of the root only */
};

/** Remember at the root what went wrong first; module may be NULL (nothing is remembered then). */
void module_fail(struct fsdp_module *module, enum fsdp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The module's parameter called `name` (the part behind the path), or NULL. */
const struct fsdp_parameter *module_parameter(const struct fsdp_module *module, const char *name);

/** The nearest module at or above `module` that fsdp_fully_shard() was called on, or NULL. */
const struct fsdp_module *module_unit(const struct fsdp_module *module);

/** What `module`'s parameters are gathered and computed with: its unit's param_dtype, float32 without one. */
enum fsdp_dtype module_param_dtype(const struct fsdp_module *module);
/** What their gradients are reduced in. */
enum fsdp_dtype module_reduce_dtype(const struct fsdp_module *module);

/** Depth first, parents before children, children in order: the next module of the tree after `module`, or
 * NULL. */
const struct fsdp_module *module_next(const struct fsdp_module *root, const struct fsdp_module *module);

#endif
