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
    FSDP_COSINE, /* the same by half a cosine */
};

/** What differs for the parameters whose names match `pattern` (*, ? and [...], as fnmatch(3) has them). */
struct fsdp_optimizer_group {
    const char *pattern;
    double lr;           /* in place of lr, under the same schedule; negative: as it is */
    double weight_decay; /* in place of weight_decay and decay; negative: as they are */
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
    const struct fsdp_optimizer_group
        *groups; /* a parameter takes the first that matches; read by create alone */
    size_t n_groups;
    /** A directory on a disk: the state is in a file there, which has no name and ends with the process, and memory holds a
     * window of it. No bit changes. NULL: all of it is in memory. Read by create alone; the cpu device's. */
    const char *offload_dir;
    size_t offload_window_bytes; /* 0: 24 MiB */
};

/** AdamW with lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1 on all, constant. */
FSDP_API struct fsdp_optimizer_options fsdp_optimizer_defaults(void);
/** The learning rate of update `step`, counted from 1: a pure function. */
FSDP_API double fsdp_schedule_lr(const struct fsdp_optimizer_options *options, uint64_t step);

/**
 * Collective. `model` is borrowed and destroyed later. FSDP_ERR_ARG: a number out of its range, named. With offload_dir also
 * FSDP_ERR_CONFIG: it is in memory; FSDP_ERR_IO: no room there.
 */
FSDP_API enum fsdp_status fsdp_optimizer_create(struct fsdp_optimizer **out, struct fsdp_model *model,
                                                const struct fsdp_optimizer_options *options,
                                                struct fsdp_err *err);
FSDP_API void fsdp_optimizer_destroy(struct fsdp_optimizer *optimizer);

/**
 * Update this rank's parameters with the gradients of the last step, which is whole. Each step is used once.
 * Parameters without a gradient (fsdp_parameter_info.has_gradient) are left out. Without an offload_dir
 * nothing is communicated; with one the call is collective.
 *   FSDP_ERR_ARG         there are no gradients to be used: no backward since the last update; or the last
 *                        step failed, was refused, had no targets, or is not over
 *                        (fsdp_module_set_is_last_backward())
 *   FSDP_ERR_NOT_FINITE  a gradient is NaN or infinite, on any rank: the message names the first such
 *                        parameter
 *   FSDP_ERR_IO          with an offload_dir: a disk refused on some rank, parameters and state are undefined
 *                        on all, the last checkpoint stands
 * The first two are the same on every rank, and change nothing; the next step may do better.
 */
FSDP_API enum fsdp_status fsdp_optimizer_step(struct fsdp_optimizer *optimizer, struct fsdp_err *err);
/**
 * Update the parameters of one group alone, in the step that fsdp_optimizer_step() will end, which leaves them out: for
 * an optimizer inside backward (fsdp_module_register_post_accumulate_grad_hook()). Once a group and step; gradients of
 * such a step cannot be clipped any more.
 *   FSDP_ERR_ARG         no such group, a second time, or its gradients are not final: its hook was not
 *                        called, and the step is not over
 *   FSDP_ERR_NOT_FINITE  a gradient of the group is NaN or infinite in this rank's shard (after the step: on
 *                        any rank). The group is not updated. A hook returns this, and so does then the
 *                        backward on every rank: its message names the groups that any rank had updated.
 *                        These are not undone: fsdp_checkpoint_save() refuses the model until a checkpoint is
 *                        loaded into it
 */
FSDP_API enum fsdp_status fsdp_optimizer_step_group(struct fsdp_optimizer *optimizer, int group,
                                                    struct fsdp_err *err);
/** Updates done so far: the step number in logs and checkpoints. */
FSDP_API uint64_t fsdp_optimizer_step_count(const struct fsdp_optimizer *optimizer);
/** After a checkpoint was loaded into the state: go on from its step. */
FSDP_API void fsdp_optimizer_set_step_count(struct fsdp_optimizer *optimizer, uint64_t step);
/** The learning rate the next update will use, for parameters without a rate of their own. */
FSDP_API double fsdp_optimizer_lr(const struct fsdp_optimizer *optimizer);

/**
 * Change the learning rate, as `param_group["lr"] = lr` does in PyTorch. It takes the place of fsdp_optimizer_options.lr from
 * the next update on, and the schedule scales it as it scaled that one: with FSDP_CONSTANT and no warm-up `lr` is the rate
 * itself. Parameters of a group with a rate of its own keep theirs.
 *
 * Call it between steps, with the same value on every rank. With an optimizer in backward that is before the step's first
 * forward: groups that backward has updated are not updated again.
 *
 * A checkpoint holds the count of updates and the state tensors, and no rate: a program that sets the rate sets it again after
 * it has loaded a checkpoint.
 *   FSDP_ERR_ARG  `lr` is no number from 0 on; nothing was changed
 */
FSDP_API enum fsdp_status fsdp_optimizer_set_lr(struct fsdp_optimizer *optimizer, double lr,
                                                struct fsdp_err *err);
/** The same for the parameters of fsdp_optimizer_options.groups[group], which from now on have a rate of their own. FSDP_ERR_ARG
 * also where there is no such group. */
FSDP_API enum fsdp_status fsdp_optimizer_set_group_lr(struct fsdp_optimizer *optimizer, size_t group,
                                                      double lr, struct fsdp_err *err);

/** By what the rates are multiplied in one update. `step` is the count of updates done before it: 0 in the first. */
typedef double (*fsdp_lr_lambda_fn)(uint64_t step, void *user);
/**
 * A schedule by function, as PyTorch's LambdaLR: in place of the options' schedule and warm-up every rate is multiplied by
 * lr_lambda(step, user). NULL: the options' schedule again. `user` is borrowed until the function is replaced or the optimizer is
 * destroyed.
 *
 * The function is called whenever a rate is needed, several times a step; it depends on `step` alone and gives the same on
 * every rank. An update whose rate would be no number from 0 on is refused: FSDP_ERR_ARG of fsdp_optimizer_step() or
 * fsdp_optimizer_step_group(), which then changed nothing. A checkpoint does not hold the function. It goes on where the loaded
 * count of updates is.
 */
FSDP_API void fsdp_optimizer_set_lr_lambda(struct fsdp_optimizer *optimizer, fsdp_lr_lambda_fn lr_lambda,
                                           void *user);

/** State tensors "optimizer.exp_avg.P", "optimizer.exp_avg_sq.P" (AdamW), "optimizer.momentum_buffer.P" (SGD
 * with momentum). */
FSDP_API size_t fsdp_optimizer_state_count(const struct fsdp_optimizer *optimizer);
/** `data` is NULL where the state is in a file: the two below read and write it. */
FSDP_API void fsdp_optimizer_state(struct fsdp_optimizer *optimizer, struct fsdp_tensor_shard *out);
/** Elements first ... first + n_elems - 1 of this rank's rows of state tensor `index`. FSDP_ERR_ARG: out of range. */
FSDP_API enum fsdp_status fsdp_optimizer_read_state(struct fsdp_optimizer *optimizer, size_t index,
                                                    size_t first, size_t n_elems, float *out,
                                                    struct fsdp_err *err);
FSDP_API enum fsdp_status fsdp_optimizer_write_state(struct fsdp_optimizer *optimizer, size_t index,
                                                     size_t first, size_t n_elems, const float *values,
                                                     struct fsdp_err *err);
/** Bytes of memory for the state of this rank, and of a file of offload_dir (0: none). */
FSDP_API size_t fsdp_optimizer_bytes(const struct fsdp_optimizer *optimizer);
FSDP_API uint64_t fsdp_optimizer_offloaded_bytes(const struct fsdp_optimizer *optimizer);

FSDP_END_DECLS

#endif
