/*
 * FSDP2's fully_shard: the parameters of a module that no deeper fully_shard took become one group, gathered
 * by one all-gather before the module's forward, freed after it, gathered again for backward, and whose
 * gradients leave by one reduce-scatter. Apply it bottom-up: to each block, then to the root, which takes
 * what is left.
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

enum fsdp_reshard {
    FSDP_RESHARD_AUTO, /* true, but for the root, whose parameters backward needs at once */
    FSDP_RESHARD_TRUE,
    FSDP_RESHARD_FALSE, /* keep the parameters gathered until backward is done: more memory, one all-gather
                           less */
    FSDP_RESHARD_TO,    /* to a slice of 1 / reshard_size: backward gathers over so many ranks */
};

/**
 * Where shards, their gradients and optimizer state live: with the device, or in host memory. On the cpu device that is one
 * place, and the second changes nothing. Elsewhere shards are copied to the device ahead of each gather and gradients to the
 * host behind each reduction, both beside what computes; updates and norms are computed by the host. Ignored parameters stay
 * with the device.
 */
enum fsdp_offload { FSDP_OFFLOAD_NONE, FSDP_OFFLOAD_CPU };

enum { FSDP_DTYPE_NONE = -1 }; /* PyTorch's None where a dtype may stand */

/**
 * MixedPrecisionPolicy. Shards, gradient shards and optimizer state are float32 whatever it says: the master
 * weights. Float16 is not among the dtypes: it needs a gradient scaler, and bfloat16 does without.
 */
struct fsdp_mixed_precision_policy {
    int param_dtype; /* FSDP_F32 or FSDP_BF16: of gathered parameters, of what is computed with them, and of their
                         gradients; FSDP_DTYPE_NONE: as the shards, float32 */
    int reduce_dtype;         /* of the reduction of gradients; FSDP_DTYPE_NONE: param_dtype */
    int output_dtype;         /* what the module's output is cast to; FSDP_DTYPE_NONE: as it was computed */
    bool cast_forward_inputs; /* cast the module's input to param_dtype */
    /**
     * Gather the weights of linears and conv1ds in float8 e4m3, one byte an element, with one scale a tensor: its largest
     * size, over all shards, is 448. They are decoded to param_dtype as they are copied out. All else of the module, such
     * as norms, biases, embeddings and what is tied to one, is gathered in param_dtype. The largest sizes are agreed on
     * once a micro-step by an all-reduce of a float a weight.
     * On a GPU of compute capability below 8.9 fsdp_model_create() refuses it (FSDP_ERR_UNSUPPORTED).
     */
    bool float8_gather;
    /**
     * Round parameters to bfloat16 stochastically as they are gathered, in place of to nearest: to either neighbour, so that the
     * mean over draws is the master's value; what bfloat16 has, and what is not finite, stays. Draws follow from
     * fsdp_model_options.seed, the optimizer's count of steps, the parameter's name and the element's place in the whole: the same
     * in every gather of a step, at every world size and sharding, on every device, after a restart and in an
     * evaluation. With param_dtype FSDP_BF16, and without float8_gather.
     */
    bool stochastic_rounding;
};

/** MixedPrecisionPolicy(): no dtypes, inputs cast, no float8, nothing drawn. */
FSDP_API struct fsdp_mixed_precision_policy fsdp_mixed_precision_defaults(void);

struct fsdp_fully_shard_options {
    enum fsdp_reshard reshard_after_forward;
    int reshard_size; /* of FSDP_RESHARD_TO: divides the ranks that shard; 1 is false, all of them is true */
    const struct fsdp_mixed_precision_policy *mp_policy; /* NULL: the defaults; read while the call runs */
    /**
     * NULL: sharded over all ranks. One dimension: over it. Two, with names: the first replicates, the second shards
     * (HSDP): gradients are reduce-scattered along the second and all-reduced along the first. It may be a slice, and
     * units may have different meshes, of the same ranks as the root's (<fsdp/mesh.h>). It outlives the models made of
     * the tree; after a call that failed, the next fsdp_model_create() too.
     */
    struct fsdp_device_mesh *mesh;
    /** Parameters of the module that are left alone: every rank holds all of them in float32, their gradients are
     * neither reduced nor clipped. Full names; read while the call runs. */
    const char *const *ignored_params;
    size_t n_ignored_params;
    /** Called for each parameter of the unit: the dimension to cut it along, negative ones counted from the end. Other
     * dimensions than 0 must be divided evenly by the ranks. NULL: dimension 0. */
    int (*shard_placement_fn)(const char *name, int n_dims, const size_t *shape, void *user);
    void *placement_user;
    enum fsdp_offload offload_policy; /* OffloadPolicy() or CPUOffloadPolicy() */
    bool
        pin_memory; /* of the second: page-locked, or copies wait for each other; without effect on the cpu device */
};

/**
 * Make `module` a unit of sharding. `options` may be NULL: the defaults.
 *   FSDP_ERR_ARG  the module was given before, or is a container without a forward; a policy that names a dtype
 *                 other than float32 and bfloat16, or stochastic rounding without bfloat16 or with
 *                 float8; or building the tree failed earlier: the message says how
 *
 * This call needs no other rank. If it fails on one rank alone, the others learn of it in fsdp_model_create():
 *   - The tree remembers the failure, unless the same call succeeds later. fsdp_model_create() on this rank then fails with
 *     it, and so it does on all ranks.
 *   - A rank that will not call fsdp_model_create() must destroy its context or exit. Only then does the call of the others
 *     end, with FSDP_ERR_PEER; until then they wait.
 */
FSDP_API enum fsdp_status fsdp_fully_shard(struct fsdp_module *module,
                                           const struct fsdp_fully_shard_options *options,
                                           struct fsdp_err *err);

/**
 * The setters change what fsdp_fully_shard() was told, for the module, if it is a unit, and with `recurse` for all units below:
 * before the model, or between two steps of it, on all ranks alike. The next step (or evaluation) then begins by planning anew,
 * with another arena; shards stay where they are. Within a step of several calls, before each of its micro-steps,
 * set_requires_gradient_sync, set_requires_all_reduce and set_reshard_after_backward may be called as PyTorch's loops do: off
 * before all but the last, on before the last, which is planned once. What else is set within a step is FSDP_ERR_ARG of the
 * call that comes next, on every rank, and so is, for good, what says otherwise below and was called after the model was made.
 *
 * A setter, or a hook below, that finds no unit (the module is none and, with `recurse`, no module below it is one) changes
 * nothing. The tree remembers it, as it does a failed construction: fsdp_model_create(), or the next step or evaluation of a
 * model that is there already, returns FSDP_ERR_ARG with the setter and the module, from then on. On a NULL module a setter
 * does nothing. A gradient divide factor that is negative or no number is remembered in the same way.
 */
FSDP_API void fsdp_module_set_reshard_after_forward(struct fsdp_module *module, bool reshard, bool recurse);
/** False: parameters stay gathered from one micro-step to the next, and are freed by the step's last. Default
 * true. */
FSDP_API void fsdp_module_set_reshard_after_backward(struct fsdp_module *module, bool reshard, bool recurse);

/**
 * fully_shard() on a list: the modules form ONE group. It is gathered when the first of them runs, freed when all have
 * run, and reduced once; setters may be called on any of them. For modules that share a parameter, and to make one
 * collective of several small ones. The root is sharded alone.
 */
FSDP_API enum fsdp_status fsdp_fully_shard_modules(struct fsdp_module *const *modules, size_t n_modules,
                                                   const struct fsdp_fully_shard_options *options,
                                                   struct fsdp_err *err);

/* --- gradients ------------------------------------------------------------------------------------------------ */

/**
 * Reduce the module's gradients in every micro-step of a step (true), or let them add up whole and reduce them in the
 * last one, which always does (false). Where it was not called, fsdp_model_options.gradient_sync says.
 */
FSDP_API void fsdp_module_set_requires_gradient_sync(struct fsdp_module *module, bool requires_gradient_sync,
                                                     bool recurse);
/**
 * Over two dimensions, where gradients are reduced in every micro-step: false leaves the all-reduce to the last one;
 * until then reduce-scattered gradients add up in their shards. Default true.
 */
FSDP_API void fsdp_module_set_requires_all_reduce(struct fsdp_module *module, bool requires_all_reduce,
                                                  bool recurse);
/** Divide the sum over the ranks by `factor` in place of their number; 0: by their number. */
FSDP_API void fsdp_module_set_gradient_divide_factor(struct fsdp_module *module, double factor, bool recurse);
/** Sum in the collectives and divide afterwards, in place of averaging in them. Default false. */
FSDP_API void fsdp_module_set_force_sum_reduction_for_comms(struct fsdp_module *module, bool force_sum,
                                                            bool recurse);

/**
 * Gather these units' parameters as soon as the module's own are there in forward, or in backward; there in place of the
 * unit before it. One unit is the overlap that there is anyway, more are more overlap and more memory. The module is a
 * unit, and so are the others, of the same tree. n_units 0: as without.
 */
FSDP_API enum fsdp_status fsdp_module_set_modules_to_forward_prefetch(struct fsdp_module *module,
                                                                      struct fsdp_module *const *units,
                                                                      size_t n_units, struct fsdp_err *err);
FSDP_API enum fsdp_status fsdp_module_set_modules_to_backward_prefetch(struct fsdp_module *module,
                                                                       struct fsdp_module *const *units,
                                                                       size_t n_units, struct fsdp_err *err);
/** False: the module's parameters are not gathered for backward, which must not read them (an embedding's does not).
 * Default true. Of this module alone. */
FSDP_API void fsdp_module_set_unshard_in_backward(struct fsdp_module *module, bool unshard);
/** How many buffers of packed gradients may wait for their reduction at once, at least 1, the default: more overlap,
 * more memory. The largest of all units' counts. */
FSDP_API enum fsdp_status fsdp_module_set_reduce_scatter_max_input_buffers(struct fsdp_module *module,
                                                                           int n_buffers, bool recurse,
                                                                           struct fsdp_err *err);
/** A communicator of its own for reductions, so that they need not wait behind gathers. Default false; one unit that
 * asks for it gives it to all. Before the model. */
FSDP_API void fsdp_module_set_separate_reduce_scatter_group(struct fsdp_module *module, bool enable,
                                                            bool recurse);

/**
 * Parameters that require a gradient and are not reached by backward: true reduces zeros for them and updates them,
 * false (the default) leaves them out of both. Before the model.
 */
FSDP_API void fsdp_module_set_reduce_scatter_unused_params(struct fsdp_module *module, bool reduce,
                                                           bool recurse);

/**
 * Called with each reduced row of a unit's gradients before it is stored: after the reduce-scatter, or after the
 * all-reduce where there is one. `row` (n_elems) of `dtype` on the device may be changed; what is done to it is
 * queued on `stream`. An error ends the step; of a hook that calls collectives it ends them for good, as below, once it was seen
 * to. Where communication overlaps with kernels it is called on the thread of communication, which must enter no OpenMP.
 */
typedef enum fsdp_status (*fsdp_all_reduce_hook_fn)(void *row, size_t n_elems, enum fsdp_dtype dtype,
                                                    struct device_stream *stream, void *user,
                                                    struct fsdp_err *err);
/** set_all_reduce_hook of this module alone; NULL: none. */
FSDP_API void fsdp_module_set_all_reduce_hook(struct fsdp_module *module, fsdp_all_reduce_hook_fn hook,
                                              void *user);

/**
 * set_custom_all_gather, set_custom_reduce_scatter: called in place of fsdp_all_gather() and fsdp_reduce_scatter() for a unit's
 * parameters and gradients, with what these are given: `group` is the unit's, over which all of its ranks call at once;
 * `recv` may be block `rank` of `send`, and `send` that of `recv`. The buffers are the plan's; rows of a unit that gathers in
 * float8 are bytes, FSDP_U8. Not called where one rank shards. An error ends the step and, as nobody knows what the other ranks
 * then wait for, the model's process groups: each of those ranks gets FSDP_ERR_PEER at once, wherever it waits, with the number
 * and words of this one. Where communication overlaps with kernels they are called on the thread of communication, which must
 * enter no OpenMP.
 */
typedef enum fsdp_status (*fsdp_all_gather_fn)(struct fsdp_comm *group, const void *send, void *recv,
                                               size_t n_elems, enum fsdp_dtype dtype,
                                               struct device_stream *stream, void *user,
                                               struct fsdp_err *err);
typedef enum fsdp_status (*fsdp_reduce_scatter_fn)(struct fsdp_comm *group, const void *send, void *recv,
                                                   size_t n_elems, enum fsdp_dtype dtype,
                                                   enum fsdp_reduce_op op, struct device_stream *stream,
                                                   void *user, struct fsdp_err *err);
/** Of this module alone; NULL: the group's own. */
FSDP_API void fsdp_module_set_custom_all_gather(struct fsdp_module *module, fsdp_all_gather_fn fn,
                                                void *user);
FSDP_API void fsdp_module_set_custom_reduce_scatter(struct fsdp_module *module, fsdp_reduce_scatter_fn fn,
                                                    void *user);

struct fsdp_model;

/**
 * Called once a step when the gradients of a unit are final, in its last micro-step: register_post_accumulate_grad_hook
 * for a whole unit. `group` is that of fsdp_parameter_info. With fsdp_optimizer_step_group() as its work the optimizer
 * runs inside backward; backward then waits for each reduction. An error ends the step. In a model with such
 * hooks the loss of the step is agreed on before its last backward, which is not run where the loss is not
 * finite (FSDP_ERR_NOT_FINITE).
 */
typedef enum fsdp_status (*fsdp_post_accumulate_grad_hook_fn)(struct fsdp_model *model, int group, void *user,
                                                              struct fsdp_err *err);
/** Of the module, if it is a unit, and with `recurse` of all units below; before the model, or between two steps of it, as
 * the setters above. NULL: none. */
FSDP_API void fsdp_module_register_post_accumulate_grad_hook(struct fsdp_module *module,
                                                             fsdp_post_accumulate_grad_hook_fn hook,
                                                             void *user, bool recurse);

FSDP_END_DECLS

#endif
