/*
 * The internal structure of a module; <fsdp/module.h> is the interface for users. A tree owns its modules and
 * parameters. The tree's root stores the first failure that occurred while the tree was built.
 */
#ifndef CORE_MODULE_H
#define CORE_MODULE_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/activation_checkpoint.h>
#include <fsdp/fully_shard.h>
#include <fsdp/module.h>
#include <fsdp/tensor_parallel.h>

/*
 * How tensor parallelism splits a tensor: into n_parts equal parts along dimension `dim`. This rank has part
 * number `part`. n_parts is 1 if the tensor is not split.
 */
struct tensor_split {
    int n_parts, part, dim;
};

struct fsdp_parameter {
    char *name; /* full name: path of its module, a dot, its own name */
    int n_dims;
    /* shape of what this rank computes with: its own part if tensor parallelism splits the parameter */
    size_t shape[FSDP_MAX_DIMS];
    size_t n_elems, row_elems; /* row_elems = n_elems / shape[0] */
    struct tensor_split split;
    size_t whole_shape[FSDP_MAX_DIMS], whole_elems; /* shape and element count of all parts together */
    enum fsdp_init init;
    float init_std; /* standard deviation for FSDP_INIT_NORMAL */
    const struct fsdp_module *owner;
    bool frozen;    /* requires_grad is false */
    bool ignored;   /* excluded from sharding: every rank holds all of it, and no rank reduces its gradient */
    bool is_factor; /* read only by matrix products (a linear's weight); may be gathered in float8 */
    int shard_dim;  /* dimension along which sharding splits it */
};

/* A second name of a parameter, in another module: the parameter is shared (tied). */
struct module_alias {
    char *name;
    struct fsdp_parameter *parameter;
};

/* Units to gather in advance. The module frees the array. */
struct unit_list {
    struct fsdp_module **units;
    size_t n_units;
};

enum unit_sync { UNIT_SYNC_AS_MODEL, UNIT_SYNC_EVERY, UNIT_SYNC_LAST };

/* The settings of a unit of sharding, from fsdp_fully_shard() and the setters. */
struct unit_policy {
    enum fsdp_reshard reshard_after_forward;
    int reshard_size; /* number of ranks, for FSDP_RESHARD_TO */
    struct fsdp_mixed_precision_policy precision;
    struct fsdp_device_mesh *mesh; /* NULL: all ranks */
    enum unit_sync gradient_sync;
    bool keep_after_backward, defers_all_reduce, force_sum, reduces_unused;
    double divide_factor; /* 0: the number of ranks */
    fsdp_all_reduce_hook_fn hook;
    void *hook_user;
    fsdp_all_gather_fn all_gather; /* replaces the group's own all-gather, unless NULL */
    fsdp_reduce_scatter_fn reduce_scatter;
    void *all_gather_user, *reduce_scatter_user;
    fsdp_post_accumulate_grad_hook_fn post_hook;
    void *post_hook_user;
    struct unit_list prefetch[2]; /* units to gather early: [0] in forward, [1] in backward */
    bool not_in_backward;         /* backward does not gather this unit */
    int reduce_buffers;           /* reduces in flight at the same time; 0 counts as 1 */
    bool separate_reduces;
    enum fsdp_offload offload;
    bool pin_memory; /* for offloaded memory */
};

/*
 * How tensor parallelism splits a module. `mesh` is the tensor group's mesh, of one dimension, or NULL if the
 * module is not split.
 */
struct module_tensor {
    struct fsdp_device_mesh *mesh;
    enum fsdp_parallel_style style;
    int n_parts, part;
};

/*
 * The first call that failed to shard or split a module. The call may have failed on this rank only. Some
 * ranks of the model learn of the failure only in fsdp_model_create(), which then fails with the same error.
 */
struct module_refusal {
    struct fsdp_err err;
    /*
     * the module of a failed fsdp_fully_shard(). If a later call on this module succeeds, the record is
     * cleared. NULL: it is never cleared.
     */
    const struct fsdp_module *at;
    int n_parts; /* number of parts of a failed split; 0: no split failed */
};

struct fsdp_module {
    char *name, *path;
    struct fsdp_module *parent, *root;
    struct fsdp_module **children;
    size_t n_children, children_capacity;
    struct fsdp_parameter **parameters;
    size_t n_parameters, parameters_capacity;
    struct module_alias *aliases;
    size_t n_aliases, aliases_capacity;
    fsdp_forward_fn forward;
    void *user;
    void *owned;  /* freed with the module; library modules store their attributes here */
    bool sharded; /* fsdp_fully_shard() was called on it */
    /*
     * The first module of the list with which this one was sharded; its policy applies. NULL: this module
     * itself.
     */
    struct fsdp_module *leader;
    struct unit_policy policy;
    enum fsdp_activation_checkpoint checkpoint;
    struct module_tensor tensor;
    struct fsdp_err err;           /* used in the root only */
    struct module_refusal refusal; /* used in the root only */
};

/**
 * Records a failure while a tree is built, at the root of `module`, unless one is recorded already. Does
 * nothing if `module` is NULL.
 */
void module_fail(struct fsdp_module *module, enum fsdp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Records in the tree of `module` that a call failed with `own`, unless another failure is recorded already.
 * Copies `own` to `err` and returns own's status. `at` is the member of struct module_refusal. Records
 * nothing if `module` is NULL.
 */
enum fsdp_status module_refuse(struct fsdp_module *module, const struct fsdp_module *at,
                               const struct fsdp_err *own, struct fsdp_err *err);

/** Returns FSDP_OK, or the failure that module_refuse() recorded in the tree. */
enum fsdp_status module_check_refusal(const struct fsdp_module *module, struct fsdp_err *err);

/**
 * Returns the parameter called `name` in this module, without the module's path in the name, or NULL. Tied
 * parameters are found by their name in this module.
 */
const struct fsdp_parameter *module_parameter(const struct fsdp_module *module, const char *name);

/**
 * Splits `parameter` along `dim` into n_parts equal parts; this rank keeps part number `part`. n_parts must
 * divide that dimension. Call it once per parameter, before its unit is sharded.
 */
void parameter_split(struct fsdp_parameter *parameter, int dim, int n_parts, int part);

/** Returns the nearest sharded module (fsdp_fully_shard()) at or above `module`, or NULL. */
const struct fsdp_module *module_unit(const struct fsdp_module *module);

/**
 * Returns the module that names the group of `module` and holds its policy, or NULL if `module` is in no
 * unit.
 */
const struct fsdp_module *module_group(const struct fsdp_module *module);

/**
 * Returns the dtype in which `parameter` is gathered and used. This is its group's param_dtype, or float32 if
 * the parameter is in no unit or is ignored by sharding.
 */
enum fsdp_dtype parameter_dtype(const struct fsdp_parameter *parameter);

/**
 * Each returns a dtype of `group`: group_param_dtype() the one it computes in, group_reduce_dtype() the one
 * in which it reduces gradients.
 */
enum fsdp_dtype group_param_dtype(const struct fsdp_module *group);
enum fsdp_dtype group_reduce_dtype(const struct fsdp_module *group);

/** Returns true if `parameter` is gathered in float8, with a scale of its own. */
bool parameter_is_coded(const struct fsdp_parameter *parameter);
/** Marks the parameter `name` of `module`, which created it, as read only by matrix products. */
void module_mark_factor(struct fsdp_module *module, const char *name);

/**
 * Returns FSDP_OK if no parameter is shared between groups. Otherwise returns FSDP_ERR_ARG with the first
 * such parameter and both modules in the message.
 */
enum fsdp_status module_check_ties(const struct fsdp_module *root, struct fsdp_err *err);

/**
 * Walks a tree depth first: parents before children, children in order. Returns the module after `module` in
 * the tree of `root`, or NULL at the end.
 */
const struct fsdp_module *module_next(const struct fsdp_module *root, const struct fsdp_module *module);

#endif
