/*
 * The arithmetic of optimizers on the rows of one rank, and the learning rate. Nothing here keeps state or
 * communicates: engine/optimizer.c owns the state in memory and decides which tensors are updated. rates.h
 * has the options of each tensor, and offload.h keeps state in a file.
 */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/optimizer.h>

#include "shard_runtime/numerics/numerics.h"

enum { OPTIM_MAX_STATES = 2 };

/**
 * This rank's rows of one parameter, without padding. The memory is the caller's, in the place of the
 * parameter.
 */
struct optim_tensor {
    float *param;
    /* in the order of optim_ops.state_names; NULL where a state is not used */
    float *state[OPTIM_MAX_STATES];
    size_t n_elems;
    int n_dims; /* number of dimensions of the whole parameter; weight decay may depend on it */
};

/** One kind of optimizer. */
struct optim_ops {
    /* each name is without prefix and parameter: "exp_avg" of P is stored as "optimizer.exp_avg.P" */
    const char *state_names[OPTIM_MAX_STATES];
    /** Returns how many states a parameter has with these options. */
    int (*n_states)(const struct fsdp_optimizer_options *options);
    /**
     * Queue update number `step`, counted from 1, on `stream`.
     *   options    what all tensors share; lr and weight_decay are not read
     *   updates    one entry for each tensor, with its own rates; read before the call returns
     */
    void (*update)(struct numerics *numerics, struct device_stream *stream,
                   const struct fsdp_optimizer_options *options, const struct numerics_update *updates,
                   size_t n_updates, uint64_t step);
};

/** Returns the optimizer of this kind. */
const struct optim_ops *optim_find(enum fsdp_optimizer_kind kind);

extern const struct optim_ops optim_adamw_ops;
extern const struct optim_ops optim_sgd_ops;

/** Check every setting. FSDP_ERR_ARG names the first one that is out of its range. */
enum fsdp_status optim_check(const struct fsdp_optimizer_options *options, struct fsdp_err *err);

/** Can `lr` be a learning rate: a finite number that is not negative? */
bool optim_is_rate(double lr);

/**
 * Returns the weight decay of a parameter of `n_dims` dimensions: 0 for vectors where only matrices decay.
 */
double optim_decay(const struct fsdp_optimizer_options *options, int n_dims);

/** Bytes of memory, and of the file, that the states of n_elems elements take with these options. */
void optim_need(const struct fsdp_optimizer_options *options, size_t n_elems, size_t *memory_bytes,
                uint64_t *file_bytes);

#endif
