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
#include <fsdp/tensor_parallel.h>

/* How tensor parallelism cuts a tensor: into n_parts equal parts along dimension `dim`, of which this rank has number
 * `part`. n_parts 1: not at all. */
struct tensor_split {
    int n_parts, part, dim;
};

struct fsdp_parameter {
    char *name; /* with the path of its module in front */
    int n_dims;
    size_t shape
        [FSDP_MAX_DIMS]; /* of what this rank computes with: its part, where tensor parallelism splits it */
    size_t n_elems, row_elems; /* row_elems = n_elems / shape[0] */
    struct tensor_split split;
    size_t whole_shape[FSDP_MAX_DIMS], whole_elems; /* of all parts together */
    enum fsdp_init init;
    float init_std; /* of FSDP_INIT_NORMAL */
    const struct fsdp_module *owner;
    bool frozen;    /* requires_grad false */
    bool ignored;   /* by sharding: every rank holds all of it, nobody reduces its gradient */
    bool is_factor; /* read by products alone: the weight of a linear, which may be gathered in float8 */
    int shard_dim;  /* the dimension it is cut along */
};

/* A parameter under a name in a second module: shared, or tied. */
struct module_alias {
    char *name;
    struct fsdp_parameter *parameter;
};

/* Units to be gathered early; the array is the module's. */
struct unit_list {
    struct fsdp_module **units;
    size_t n_units;
};

enum unit_sync { UNIT_SYNC_AS_MODEL, UNIT_SYNC_EVERY, UNIT_SYNC_LAST };

/* What a unit of sharding was told: fsdp_fully_shard() and the setters. */
struct unit_policy {
    enum fsdp_reshard reshard_after_forward;
    int reshard_size; /* of FSDP_RESHARD_TO */
    struct fsdp_mixed_precision_policy precision;
    struct fsdp_device_mesh *mesh; /* NULL: all ranks */
    enum unit_sync gradient_sync;
    bool keep_after_backward, defers_all_reduce, force_sum, reduces_unused;
    double divide_factor; /* 0: the number of ranks */
    fsdp_all_reduce_hook_fn hook;
    void *hook_user;
    fsdp_all_gather_fn all_gather; /* in place of the group's own; NULL: that */
    fsdp_reduce_scatter_fn reduce_scatter;
    void *all_gather_user, *reduce_scatter_user;
    fsdp_post_accumulate_grad_hook_fn post_hook;
    void *post_hook_user;
    struct unit_list prefetch[2]; /* in forward, in backward */
    bool not_in_backward;         /* no gather for backward */
    int reduce_buffers;           /* in flight; 0 counts as 1 */
    bool separate_reduces;
    enum fsdp_offload offload;
    bool pin_memory; /* of what is offloaded */
};

/* Of a module that tensor parallelism splits: the tensor group's mesh, of one dimension; NULL: it does not. */
struct module_tensor {
    struct fsdp_device_mesh *mesh;
    enum fsdp_parallel_style style;
    int n_parts, part;
};

/*
 * The first call that could not shard or split. It may have failed on this rank alone, and the model's ranks are not all told
 * before fsdp_model_create(), which fails with it.
 */
struct module_refusal {
    struct fsdp_err err;
    const struct fsdp_module *at; /* fully_shard of this module, forgotten once that succeeds; NULL: kept */
    int n_parts; /* into which a call that failed was to split; 0: it was no split */
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
    void *owned;  /* freed with the module: attributes of library modules */
    bool sharded; /* fsdp_fully_shard() was called on it */
    struct fsdp_module
        *leader; /* the first of the list it was given in, which has the policy; NULL: itself */
    struct unit_policy policy;
    enum fsdp_activation_checkpoint checkpoint;
    struct module_tensor tensor;
    struct fsdp_err err;           /* of the root only */
    struct module_refusal refusal; /* of the root only */
};

/** Remember at the root what went wrong first; module may be NULL (nothing is remembered then). */
void module_fail(struct fsdp_module *module, enum fsdp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Keep at the root of `module` that a call failed as `own` says, unless another did before; give `own` to the caller. `at` is
 * as in module_refusal. A NULL module keeps nothing. */
enum fsdp_status module_refuse(struct fsdp_module *module, const struct fsdp_module *at,
                               const struct fsdp_err *own, struct fsdp_err *err);
/** FSDP_OK, or what module_refuse() keeps in the tree. */
enum fsdp_status module_check_refusal(const struct fsdp_module *module, struct fsdp_err *err);

/** The module's parameter called `name` (the part behind the path), or NULL. */
const struct fsdp_parameter *module_parameter(const struct fsdp_module *module, const char *name);

/** Let this rank keep part number `part` of n_parts of `parameter` along `dim`, which n_parts divides. Once, before its unit is
 * sharded. */
void parameter_split(struct fsdp_parameter *parameter, int dim, int n_parts, int part);

/** The nearest module at or above `module` that fsdp_fully_shard() was called on, or NULL. */
const struct fsdp_module *module_unit(const struct fsdp_module *module);

/** The module whose policy is that of the unit `module` is in: what names a group; NULL without a unit. */
const struct fsdp_module *module_group(const struct fsdp_module *module);

/** What `parameter` is gathered and computed with: its unit's param_dtype, float32 without one or when ignored. */
enum fsdp_dtype parameter_dtype(const struct fsdp_parameter *parameter);
/** What a group computes with and reduces in. */
enum fsdp_dtype group_param_dtype(const struct fsdp_module *group);
enum fsdp_dtype group_reduce_dtype(const struct fsdp_module *group);

/** Is it gathered in float8, with a scale of its own? */
bool parameter_is_coded(const struct fsdp_parameter *parameter);
/** Let the parameter `name` of `module`, which made it, be one that products alone read. */
void module_mark_factor(struct fsdp_module *module, const char *name);

/** FSDP_OK, or the first parameter that modules of two groups share, with the names of both. */
enum fsdp_status module_check_ties(const struct fsdp_module *root, struct fsdp_err *err);

/** Depth first, parents before children, children in order: the next module of the tree after `module`, or
 * NULL. */
const struct fsdp_module *module_next(const struct fsdp_module *root, const struct fsdp_module *module);

#endif
