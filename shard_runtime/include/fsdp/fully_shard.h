/*
 * FSDP2's fully_shard: mark the modules ("units") whose parameters are sharded together.
 *
 * A unit takes all parameters of its module that no unit inside it has taken. These form one group:
 *   1. One all-gather before the module's forward makes the parameters whole.
 *   2. They are freed after forward and gathered again for backward.
 *   3. One reduce-scatter after backward leaves each rank the gradients of its own shard.
 * Apply it bottom-up: first to each block, then to the root, which takes what is left.
 *
 * Thread: all functions here are called by the thread that builds the tree and runs the model's steps.
 */
#ifndef FSDP_FULLY_SHARD_H
#define FSDP_FULLY_SHARD_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/comm.h>
#include <fsdp/dtype.h>
#include <fsdp/module.h>

FSDP_BEGIN_DECLS

struct fsdp_device_mesh;
struct device_stream;

/** Use of gathered parameters between forward and backward. */
enum fsdp_reshard {
    FSDP_RESHARD_AUTO, /* FSDP_RESHARD_TRUE, except for the root: backward needs its parameters at once */
    FSDP_RESHARD_TRUE, /* free them; backward gathers them again */
    /* Keep them gathered until backward is done: more memory, one all-gather less. */
    FSDP_RESHARD_FALSE,
    /* Keep a slice of 1 / reshard_size of them: backward then gathers over reshard_size ranks only. */
    FSDP_RESHARD_TO,
};

/**
 * Where shards, their gradients and optimizer state are stored: in the device's memory, or in host memory.
 * On the cpu device both are the same place and FSDP_OFFLOAD_CPU changes nothing.
 *
 * With FSDP_OFFLOAD_CPU on another device, shards are copied to the device before each gather, and gradients
 * are copied to the host after each reduction. Both run in parallel with computation. The host computes
 * updates and norms. Ignored parameters stay on the device.
 */
enum fsdp_offload { FSDP_OFFLOAD_NONE, FSDP_OFFLOAD_CPU };

enum { FSDP_DTYPE_NONE = -1 }; /* PyTorch's None, in a field that holds a dtype */

/**
 * MixedPrecisionPolicy. It does not change the master weights: shards, gradient shards and optimizer state
 * are always float32. Float16 is not supported: it would need a gradient scaler, which bfloat16 does not.
 */
struct fsdp_mixed_precision_policy {
    /*
     * Dtype of gathered parameters, of the computation with them, and of their gradients: FSDP_F32 or
     * FSDP_BF16. FSDP_DTYPE_NONE: float32, like the shards.
     */
    int param_dtype;
    int reduce_dtype;         /* dtype in which gradients are reduced; FSDP_DTYPE_NONE: param_dtype */
    int output_dtype;         /* dtype the module's output is cast to; FSDP_DTYPE_NONE: no cast */
    bool cast_forward_inputs; /* cast the module's input to param_dtype */
    /**
     * Gather the weights of linears and conv1ds in float8 e4m3, one byte an element.
     *
     * Each tensor has one scale: the largest absolute value, over all shards, becomes 448. The ranks agree on
     * these values once a micro-step, by an all-reduce of one float per weight. Copying out decodes the
     * weights to param_dtype. Everything else in the module is gathered in param_dtype: norms, biases,
     * embeddings, and what is tied to an embedding.
     * On a GPU of compute capability below 8.9 fsdp_model_create() returns FSDP_ERR_UNSUPPORTED.
     */
    bool float8_gather;
    /**
     * Round parameters to bfloat16 stochastically when they are gathered, instead of to the nearest value.
     *
     * Each element goes to one of its two neighbours, so that the mean over draws is the master's value.
     * Values that bfloat16 can hold, and values that are not finite, do not change. A draw depends on
     * fsdp_model_options.seed, the optimizer's count of steps, the parameter's name, and the element's index
     * in the whole parameter. So every gather of a step gives the same, and so does an evaluation. It is also
     * the same at every world size and sharding, on every device, and after a restart. Requires param_dtype
     * FSDP_BF16 and excludes float8_gather.
     */
    bool stochastic_rounding;
};

/** Return MixedPrecisionPolicy()'s defaults: no dtypes, inputs cast, no float8, rounding to nearest. */
FSDP_API struct fsdp_mixed_precision_policy fsdp_mixed_precision_defaults(void);

struct fsdp_fully_shard_options {
    enum fsdp_reshard reshard_after_forward;
    /* For FSDP_RESHARD_TO: a divisor of the number of sharding ranks. 1 is false, all of them is true. */
    int reshard_size;
    const struct fsdp_mixed_precision_policy *mp_policy; /* NULL: the defaults; read while the call runs */
    /**
     * The ranks to shard over. NULL: all ranks.
     *
     * A mesh of one dimension shards over it. A mesh of two dimensions, which must have names, replicates
     * over the first and shards over the second (HSDP). Gradients are reduce-scattered along the second
     * dimension and all-reduced along the first. The mesh may be a slice of another one. Units may have
     * different meshes, over the same ranks as the root's (<fsdp/mesh.h>). The mesh must outlive the models
     * made of the tree; after a call that failed it must outlive the next fsdp_model_create(), too.
     */
    struct fsdp_device_mesh *mesh;
    /**
     * Full names of parameters of the module that are not sharded; read while the call runs. Every rank holds
     * all of such a parameter in float32. Its gradient is neither reduced nor clipped.
     */
    const char *const *ignored_params;
    size_t n_ignored_params;
    /**
     * Called once for each parameter of the unit. Returns the dimension to cut the parameter along; a
     * negative one counts from the end. A dimension other than 0 must be divisible by the number of ranks.
     * NULL: 0.
     */
    int (*shard_placement_fn)(const char *name, int n_dims, const size_t *shape, void *user);
    void *placement_user;             /* passed as `user` */
    enum fsdp_offload offload_policy; /* OffloadPolicy() or CPUOffloadPolicy() */
    /*
     * For FSDP_OFFLOAD_CPU: page-lock the host memory. Without it, copies wait for each other. It has no
     * effect on the cpu device.
     */
    bool pin_memory;
};

/**
 * Make `module` a unit of sharding.
 *
 *   module   a module with a forward
 *   options  NULL: the defaults; read while the call runs, except for the mesh (see there)
 *
 *   FSDP_ERR_ARG  the module is a unit already, or is a container without a forward. Or the policy names a
 *                 dtype other than float32 and bfloat16, or asks for stochastic rounding without bfloat16 or
 *                 with float8. Or building the tree failed earlier: the message says how
 *
 * This call needs no other rank. If it fails on one rank alone, the others learn of it as follows:
 *   1. This rank's tree remembers the failure, unless the same call succeeds later.
 *   2. fsdp_model_create() on this rank reports the failure, and then fails on all ranks.
 *   3. If this rank does not call fsdp_model_create(), it must destroy its context or exit. Until then the
 *      other ranks wait in that call; afterwards it returns FSDP_ERR_PEER there.
 */
FSDP_API enum fsdp_status fsdp_fully_shard(struct fsdp_module *module,
                                           const struct fsdp_fully_shard_options *options,
                                           struct fsdp_err *err);

/**
 * fully_shard() on a list: the modules form ONE group. It is gathered when the first of them runs, freed when
 * all have run, and reduced once. Setters may be called on any of them. Use it for modules that share a
 * parameter, or to make one collective out of several small ones. The root must be sharded alone.
 * Arguments and errors are as in fsdp_fully_shard(); `modules` is read while the call runs.
 */
FSDP_API enum fsdp_status fsdp_fully_shard_modules(struct fsdp_module *const *modules, size_t n_modules,
                                                   const struct fsdp_fully_shard_options *options,
                                                   struct fsdp_err *err);

/*
 * Setters. They change what fsdp_fully_shard() was told: for the module, if it is a unit, and with `recurse`
 * for all units below it. All ranks must make the same calls.
 *
 * When: before the model is made, or between two of its steps. The next step or evaluation then begins with a
 * new plan and a new arena; shards keep their memory. Three setters may also be called within a step of
 * several calls, before each of its micro-steps, as PyTorch's loops do: set_requires_gradient_sync,
 * set_requires_all_reduce and set_reshard_after_backward. They are switched off before all micro-steps but
 * the last and on before the last. Such a step is planned once.
 *
 * Errors:
 *   - Any other setter within a step makes the next call on the model return FSDP_ERR_ARG, on every rank.
 *   - A setter marked "before the model" that is called later makes every following call return FSDP_ERR_ARG.
 *   - A setter or hook that finds no unit changes nothing: the module is no unit, and with `recurse` no
 *     module below it is one. The tree remembers it. From then on fsdp_model_create(), or every step and
 *     evaluation of an existing model, returns FSDP_ERR_ARG and names the setter and the module.
 *   - A gradient divide factor that is negative or not a number is remembered in the same way.
 *   - On a NULL module a setter does nothing.
 */

/** reshard_after_forward of the options: true is FSDP_RESHARD_TRUE, false is FSDP_RESHARD_FALSE. */
FSDP_API void fsdp_module_set_reshard_after_forward(struct fsdp_module *module, bool reshard, bool recurse);

/** False keeps parameters gathered between micro-steps; the step's last one frees them. Default: true. */
FSDP_API void fsdp_module_set_reshard_after_backward(struct fsdp_module *module, bool reshard, bool recurse);

/**
 * True reduces the module's gradients in every micro-step of a step. False lets unreduced gradients add up;
 * the last micro-step, which always reduces, reduces their sum. Default: fsdp_model_options.gradient_sync.
 */
FSDP_API void fsdp_module_set_requires_gradient_sync(struct fsdp_module *module, bool requires_gradient_sync,
                                                     bool recurse);

/**
 * For a mesh of two dimensions whose gradients are reduced in every micro-step: false leaves the all-reduce
 * to the last micro-step. Until then reduce-scattered gradients add up in their shards. Default: true.
 */
FSDP_API void fsdp_module_set_requires_all_reduce(struct fsdp_module *module, bool requires_all_reduce,
                                                  bool recurse);

/**
 * Divide the sum of gradients over the ranks by `factor`, instead of by the number of ranks (which 0 means).
 */
FSDP_API void fsdp_module_set_gradient_divide_factor(struct fsdp_module *module, double factor, bool recurse);

/**
 * True lets collectives sum and divides afterwards; false lets collectives compute the mean. Default: false.
 */
FSDP_API void fsdp_module_set_force_sum_reduction_for_comms(struct fsdp_module *module, bool force_sum,
                                                            bool recurse);

/**
 * Name units to gather ahead in forward, as soon as the parameters of `module` are gathered.
 *
 * They are gathered before the unit that is next, which is gathered ahead in any case. It takes more memory.
 *   module, units  units of one tree; `units` is read while the call runs
 *   n_units        0: only the next unit is gathered ahead
 *   FSDP_ERR_ARG   one of them is no unit of this tree; nothing changed
 */
FSDP_API enum fsdp_status fsdp_module_set_modules_to_forward_prefetch(struct fsdp_module *module,
                                                                      struct fsdp_module *const *units,
                                                                      size_t n_units, struct fsdp_err *err);

/**
 * The units that are gathered ahead in backward, as fsdp_module_set_modules_to_forward_prefetch() sets those
 * of forward. In backward these units replace the one that would be gathered next anyway.
 */
FSDP_API enum fsdp_status fsdp_module_set_modules_to_backward_prefetch(struct fsdp_module *module,
                                                                       struct fsdp_module *const *units,
                                                                       size_t n_units, struct fsdp_err *err);

/**
 * False: do not gather the parameters of `module` for backward. Its backward must then not read them; an
 * embedding's does not. Applies to this module alone. Default: true.
 */
FSDP_API void fsdp_module_set_unshard_in_backward(struct fsdp_module *module, bool unshard);

/**
 * Set how many buffers of packed gradients may wait for their reduction at the same time: at least 1, which
 * is the default. More buffers give more overlap and take more memory. The largest count of all units is
 * used.
 *   FSDP_ERR_ARG  n_buffers is below 1; nothing changed
 */
FSDP_API enum fsdp_status fsdp_module_set_reduce_scatter_max_input_buffers(struct fsdp_module *module,
                                                                           int n_buffers, bool recurse,
                                                                           struct fsdp_err *err);

/**
 * True gives reductions a communicator of their own, so that they do not wait for gathers. If one unit asks
 * for it, all have it. Before the model. Default: false.
 */
FSDP_API void fsdp_module_set_separate_reduce_scatter_group(struct fsdp_module *module, bool enable,
                                                            bool recurse);

/**
 * For parameters that require a gradient but are not reached by backward. true: zeros are reduced for them,
 * and they are updated. false: neither is done. Before the model. Default: false.
 */
FSDP_API void fsdp_module_set_reduce_scatter_unused_params(struct fsdp_module *module, bool reduce,
                                                           bool recurse);

/**
 * A function that sees each reduced row of a unit's gradients before the row is stored. It is called after
 * the reduce-scatter, or after the all-reduce if there is one.
 *
 *   row     (n_elems) of `dtype` on the device; the function may change it, by work queued on `stream`
 *   user    as given to fsdp_module_set_all_reduce_hook()
 *
 * An error ends the step. If the function itself calls collectives, its error breaks the process groups as
 * described for fsdp_all_gather_fn. Where communication overlaps with kernels, the communication thread makes
 * the call; the function must then not enter OpenMP.
 */
typedef enum fsdp_status (*fsdp_all_reduce_hook_fn)(void *row, size_t n_elems, enum fsdp_dtype dtype,
                                                    struct device_stream *stream, void *user,
                                                    struct fsdp_err *err);

/** set_all_reduce_hook: applies to this module alone; NULL removes the hook. */
FSDP_API void fsdp_module_set_all_reduce_hook(struct fsdp_module *module, fsdp_all_reduce_hook_fn hook,
                                              void *user);

/**
 * A function that replaces fsdp_all_gather() for a unit's parameters.
 *
 *   group    the unit's; all of its ranks call the function at once
 *   send     (n_elems) this rank's rows, of `dtype`; it may be block `rank` of `recv`
 *   recv     (ranks of the group, n_elems)
 *   dtype    FSDP_U8 for a unit that gathers in float8
 * The buffers belong to the plan. The function is not called if only one rank shards.
 *
 * An error ends the step. It also breaks the model's process groups, because no rank knows which calls the
 * other ranks wait for. Every other rank gets FSDP_ERR_PEER at once, wherever it waits, with this rank's
 * number and message. If communication overlaps with kernels, the communication thread makes the call; the
 * function must then not enter OpenMP.
 */
typedef enum fsdp_status (*fsdp_all_gather_fn)(struct fsdp_comm *group, const void *send, void *recv,
                                               size_t n_elems, enum fsdp_dtype dtype,
                                               struct device_stream *stream, void *user,
                                               struct fsdp_err *err);

/**
 * A function that replaces fsdp_reduce_scatter() for a unit's gradients. All else is as in
 * fsdp_all_gather_fn. `send` has (ranks of the group, n_elems). `recv` has (n_elems) and may be block `rank`
 * of `send`.
 */
typedef enum fsdp_status (*fsdp_reduce_scatter_fn)(struct fsdp_comm *group, const void *send, void *recv,
                                                   size_t n_elems, enum fsdp_dtype dtype,
                                                   enum fsdp_reduce_op op, struct device_stream *stream,
                                                   void *user, struct fsdp_err *err);

/** set_custom_all_gather: applies to this module alone; NULL is the group's own collective again. */
FSDP_API void fsdp_module_set_custom_all_gather(struct fsdp_module *module, fsdp_all_gather_fn fn,
                                                void *user);

/** set_custom_reduce_scatter: applies to this module alone; NULL is the group's own collective again. */
FSDP_API void fsdp_module_set_custom_reduce_scatter(struct fsdp_module *module, fsdp_reduce_scatter_fn fn,
                                                    void *user);

struct fsdp_model;

/**
 * A function that is called once a step for each unit, in the last micro-step, when the unit's gradients are
 * final. It is PyTorch's register_post_accumulate_grad_hook for a whole unit.
 *
 *   group   the unit's number, as in fsdp_parameter_info
 *
 * With fsdp_optimizer_step_group() in the function, the optimizer runs inside backward. Backward then waits
 * for each reduction. An error ends the step. A model with such hooks agrees on the loss of a step before its
 * last backward. If the loss is not finite, that backward does not run (FSDP_ERR_NOT_FINITE).
 */
typedef enum fsdp_status (*fsdp_post_accumulate_grad_hook_fn)(struct fsdp_model *model, int group, void *user,
                                                              struct fsdp_err *err);

/**
 * Set that function for the module, if it is a unit, and with `recurse` for all units below it; NULL removes
 * it. When it may be called, and what happens if there is no unit, is as for the setters above.
 */
FSDP_API void fsdp_module_register_post_accumulate_grad_hook(struct fsdp_module *module,
                                                             fsdp_post_accumulate_grad_hook_fn hook,
                                                             void *user, bool recurse);

FSDP_END_DECLS

#endif
