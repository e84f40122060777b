/*
 * The arithmetic of optimizers on one tensor's rows, and the learning rate: no state of their own, no
 * communication.
 */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/optimizer.h>

#include "shard_runtime/numerics/numerics.h"

enum { OPTIM_MAX_STATES = 2 };

/** This rank's rows of one parameter, without padding, in device memory. */
struct optim_tensor {
    float *param;
    float *state[OPTIM_MAX_STATES];
    size_t n_elems;
    int n_dims; /* of the whole parameter: what decays may depend on it */
};

struct optim_ops {
    const char *state_names[OPTIM_MAX_STATES]; /* "exp_avg": a state of P is called "optimizer.exp_avg.P" */
    /** How many of them are used with these options. */
    int (*n_states)(const struct fsdp_optimizer_options *options);
    /** Update `step`, counted from 1, of tensors that share all options but the rates that stand beside them. */
    void (*update)(struct numerics *numerics, struct device_stream *stream,
                   const struct fsdp_optimizer_options *options, const struct numerics_update *updates,
                   size_t n_updates, uint64_t step);
};

const struct optim_ops *optim_find(enum fsdp_optimizer_kind kind);

extern const struct optim_ops optim_adamw_ops;
extern const struct optim_ops optim_sgd_ops;

/** FSDP_ERR_ARG names the first setting that is out of its range. */
enum fsdp_status optim_check(const struct fsdp_optimizer_options *options, struct fsdp_err *err);

/** Can `lr` be a learning rate: a finite number from 0 on? */
bool optim_is_rate(double lr);

/** The weight decay of a parameter of `n_dims` dimensions. */
double optim_decay(const struct fsdp_optimizer_options *options, int n_dims);

#endif
