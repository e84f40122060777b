/*
 * Optimizers over shards: every rank updates its own rows, without communication. State is unpadded, of this
 * rank's rows only, and has names, so that a checkpoint can be read at another world size.
 */
#ifndef FSDP_OPTIMIZER_H
#define FSDP_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/model.h>

FSDP_BEGIN_DECLS

struct fsdp_optimizer;

enum fsdp_optimizer_kind {
    FSDP_ADAMW, /* torch.optim.AdamW */
    FSDP_SGD,   /* torch.optim.SGD, with momentum, without dampening or Nesterov */
};

enum fsdp_decay {
    FSDP_DECAY_ALL,      /* every parameter, as PyTorch does */
    FSDP_DECAY_MATRICES, /* parameters of two or more dimensions only */
};

enum fsdp_schedule {
    FSDP_CONSTANT,
    FSDP_LINEAR, /* from lr after the warm-up towards 0 after total_steps */
    FSDP_COSINE, /* from lr after the warm-up towards 0 after total_steps, along half a cosine */
};

/** Options for the parameters whose names match `pattern` (*, ? and [...], as in fnmatch(3)). */
struct fsdp_optimizer_group {
    const char *pattern;
    double lr; /* replaces lr, under the same schedule; negative: lr is used */
    /* replaces weight_decay and decay of the options; negative: the options' values are used */
    double weight_decay;
};

struct fsdp_optimizer_options {
    enum fsdp_optimizer_kind kind;
    double lr;
    double betas[2], eps; /* AdamW */
    double momentum;      /* SGD */
    double weight_decay;
    enum fsdp_decay decay;
    enum fsdp_schedule schedule;
    uint64_t warmup_steps; /* lr * step / warmup_steps while step <= warmup_steps */
    uint64_t total_steps;  /* where linear and cosine end; not used by constant */
    /* A parameter belongs to the first group whose pattern matches; read by fsdp_optimizer_create() only. */
    const struct fsdp_optimizer_group *groups;
    size_t n_groups;
    /**
     * A directory on a disk that holds the state, for the cpu device; NULL: the state is in memory. The
     * state's file has no name and ends with the process; memory holds a window of it. Results have the same
     * bits. Read by fsdp_optimizer_create() only.
     */
    const char *offload_dir;
    size_t offload_window_bytes; /* 0: 24 MiB */
};

/**
 * Return the defaults: AdamW, constant lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1 on everything.
 */
FSDP_API struct fsdp_optimizer_options fsdp_optimizer_defaults(void);

/** Return the learning rate of update `step`, counted from 1. It depends on its arguments alone. */
FSDP_API double fsdp_schedule_lr(const struct fsdp_optimizer_options *options, uint64_t step);

/**
 * Create an optimizer; collective. `model` is borrowed and must outlive it; `options` are read while the call
 * runs.
 *
 *   FSDP_ERR_ARG     a number is out of its range; the message names it
 *   FSDP_ERR_CONFIG  offload_dir is on a file system in memory
 *   FSDP_ERR_IO      there is no room in offload_dir
 */
FSDP_API enum fsdp_status fsdp_optimizer_create(struct fsdp_optimizer **out, struct fsdp_model *model,
                                                const struct fsdp_optimizer_options *options,
                                                struct fsdp_err *err);

/** Frees the optimizer and its state. Call it before the model is destroyed. NULL is a no-op. */
FSDP_API void fsdp_optimizer_destroy(struct fsdp_optimizer *optimizer);

/**
 * Update this rank's parameters with the gradients of the last step, which must be over. The gradients of a
 * step can be used once. Parameters without a gradient (fsdp_parameter_info.has_gradient) do not change. With
 * an offload_dir the call is collective. It also is if the ranks of a tensor group compute with different
 * machines (tensor_parallel.h). Otherwise it does not communicate.
 *
 *   FSDP_ERR_ARG         there are no gradients to use: no backward ran since the last update. Or the last
 *                        step failed, was refused, had no targets, or is not over
 *                        (fsdp_module_set_is_last_backward())
 *   FSDP_ERR_NOT_FINITE  a gradient is NaN or infinite on any rank; the message names the first such
 *                        parameter
 *   FSDP_ERR_IO          with an offload_dir: a disk refused on some rank. Parameters and state are undefined
 *                        on all ranks; the last checkpoint is still valid
 * The first two are the same on every rank and change nothing; the next step may succeed.
 */
FSDP_API enum fsdp_status fsdp_optimizer_step(struct fsdp_optimizer *optimizer, struct fsdp_err *err);

/**
 * Update the parameters of one group, for an optimizer inside backward: call it in a hook on final gradients
 * (fsdp_module_register_post_accumulate_grad_hook()). fsdp_optimizer_step() ends the step and leaves out what
 * was updated here. Once per group and step; the gradients of such a step can no longer be clipped.
 *
 *   FSDP_ERR_ARG         there is no such group, or it was updated in this step already. Or its gradients are
 *                        not final, because its hook was not called and the step is not over
 *   FSDP_ERR_NOT_FINITE  a gradient of the group is NaN or infinite in this rank's shard (after the step: on
 *                        any rank). The group is not updated. If a hook returns this status, backward returns
 *                        it on every rank; its message names the groups that any rank had updated. Those
 *                        updates stay: fsdp_checkpoint_save() refuses the model until a checkpoint is loaded
 *                        into it
 */
FSDP_API enum fsdp_status fsdp_optimizer_step_group(struct fsdp_optimizer *optimizer, int group,
                                                    struct fsdp_err *err);

/** Return the number of updates done so far: the step number in logs and checkpoints. */
FSDP_API uint64_t fsdp_optimizer_step_count(const struct fsdp_optimizer *optimizer);

/** Set the number of updates done, after a checkpoint's tensors were loaded into the state by hand. */
FSDP_API void fsdp_optimizer_set_step_count(struct fsdp_optimizer *optimizer, uint64_t step);

/** Return the learning rate of the next update, for parameters without a rate of their own. */
FSDP_API double fsdp_optimizer_lr(const struct fsdp_optimizer *optimizer);

/**
 * Changes the learning rate, as `param_group["lr"] = lr` does in PyTorch. It replaces
 * fsdp_optimizer_options.lr from the next update on, and the schedule scales it in the same way. With
 * FSDP_CONSTANT and no warm-up, `lr` is the rate itself. The parameters of a group that has its own rate keep
 * that rate.
 *
 * Call it between steps, with the same value on every rank. With an optimizer in backward, call it before the
 * step's first forward: groups that backward has updated are not updated again.
 *
 * A checkpoint holds the count of updates and the state tensors, but no rate. So a program that sets the rate
 * sets it again after it has loaded a checkpoint.
 *   FSDP_ERR_ARG  `lr` is negative or no number; nothing was changed
 */
FSDP_API enum fsdp_status fsdp_optimizer_set_lr(struct fsdp_optimizer *optimizer, double lr,
                                                struct fsdp_err *err);

/**
 * fsdp_optimizer_set_lr() for the parameters of fsdp_optimizer_options.groups[group], which then have a rate
 * of their own. FSDP_ERR_ARG also if there is no such group.
 */
FSDP_API enum fsdp_status fsdp_optimizer_set_group_lr(struct fsdp_optimizer *optimizer, size_t group,
                                                      double lr, struct fsdp_err *err);

/**
 * A schedule: returns the factor of all rates in one update. `step` is the number of updates done before it.
 */
typedef double (*fsdp_lr_lambda_fn)(uint64_t step, void *user);
/**
 * Sets a schedule by function, as PyTorch's LambdaLR. It replaces the options' schedule and warm-up: every
 * rate is multiplied by lr_lambda(step, user). NULL: the options' schedule is used again. `user` is borrowed
 * until the function is replaced or the optimizer is destroyed.
 *
 * The function is called whenever a rate is needed, several times a step. Its result must depend on `step`
 * alone and be the same on every rank. If a rate is negative or no number, fsdp_optimizer_step() or
 * fsdp_optimizer_step_group() returns FSDP_ERR_ARG and changes nothing. A checkpoint does not hold the
 * function. After a load the function continues with the loaded count of updates.
 */
FSDP_API void fsdp_optimizer_set_lr_lambda(struct fsdp_optimizer *optimizer, fsdp_lr_lambda_fn lr_lambda,
                                           void *user);

/**
 * Return the number of state tensors. For a parameter P their names are "optimizer.exp_avg.P" and
 * "optimizer.exp_avg_sq.P" (AdamW), or "optimizer.momentum_buffer.P" (SGD with momentum).
 */
FSDP_API size_t fsdp_optimizer_state_count(const struct fsdp_optimizer *optimizer);

/**
 * Describe the state tensors: `out` has room for fsdp_optimizer_state_count() of them. `data` is NULL if the
 * state is in a file; then use fsdp_optimizer_read_state() and fsdp_optimizer_write_state().
 */
FSDP_API void fsdp_optimizer_state(struct fsdp_optimizer *optimizer, struct fsdp_tensor_shard *out);

/**
 * Read elements first ... first + n_elems - 1 of this rank's rows of state tensor `index` into `out` (n_elems
 * float32, host memory). FSDP_ERR_ARG: out of range.
 */
FSDP_API enum fsdp_status fsdp_optimizer_read_state(struct fsdp_optimizer *optimizer, size_t index,
                                                    size_t first, size_t n_elems, float *out,
                                                    struct fsdp_err *err);

/** Write the same elements from `values`. */
FSDP_API enum fsdp_status fsdp_optimizer_write_state(struct fsdp_optimizer *optimizer, size_t index,
                                                     size_t first, size_t n_elems, const float *values,
                                                     struct fsdp_err *err);

/** Return the bytes of memory that this rank's state takes. */
FSDP_API size_t fsdp_optimizer_bytes(const struct fsdp_optimizer *optimizer);

/** Return the bytes of this rank's state file in offload_dir; 0: there is none. */
FSDP_API uint64_t fsdp_optimizer_offloaded_bytes(const struct fsdp_optimizer *optimizer);

FSDP_END_DECLS

#endif
