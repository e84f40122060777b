/*
 * What an optimizer is inside, and what of it a checkpoint has to know beside <fsdp/optimizer.h>.
 */
#ifndef ENGINE_OPTIMIZER_H
#define ENGINE_OPTIMIZER_H

#include <fsdp/optimizer.h>

#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/offload.h"
#include "shard_runtime/optim/optim.h"
#include "shard_runtime/shardfile/rows_store.h"

struct fsdp_optimizer {
    struct fsdp_model *model;
    struct fsdp_optimizer_options options;
    const struct optim_ops *ops;
    struct optim_tensor *tensors;      /* of each parameter that has a gradient */
    struct numerics_update *updates;   /* room for as many */
    struct fsdp_optimizer_options *of; /* each of these: the options with its group's in their place */
    int *params;                       /* each of these: its number in the model */
    struct lr_group {
        int index;               /* of the group of options that the parameter takes; -1: none */
        bool own_lr;             /* which has a rate of its own */
    } * lr_groups;               /* each of these */
    fsdp_lr_lambda_fn lr_lambda; /* in place of the schedule; NULL: the schedule */
    void *lr_user;
    char **names;                      /* (tensors, states) */
    int n_tensors, n_states;
    float *state[N_PLACES]; /* beside the shards that it is of */
    size_t state_bytes[N_PLACES];
    struct offload *offload; /* keeps the state in a file; NULL: it is in `state` */
    uint64_t step;
};

/** The learning rate of the next update for a parameter with these options. */
double optimizer_rate(const struct fsdp_optimizer *optimizer, const struct fsdp_optimizer_options *options);
/** FSDP_ERR_ARG: by the program's function some parameter's rate would be no number from 0 on. */
enum fsdp_status optimizer_check_rates(const struct fsdp_optimizer *optimizer, struct fsdp_err *err);

/** Who keeps the states, numbered as fsdp_optimizer_state() lists them; NULL: they are in memory. */
const struct rows_store *optimizer_store(const struct fsdp_optimizer *optimizer);

/** FSDP_OK, or FSDP_ERR_UNSUPPORTED: the state is to be in a file, and parameters of `root` that are trained are not in host
 * memory, on a device with memory of its own (`apart`). */
enum fsdp_status optimizer_check_offload(const struct fsdp_optimizer_options *options,
                                         const struct fsdp_module *root, bool apart, struct fsdp_err *err);

/** Bytes of memory, and of the file, that the states of n_elems elements take with these options. */
void optimizer_need(const struct fsdp_optimizer_options *options, size_t n_elems, size_t *memory_bytes,
                    uint64_t *file_bytes);

#endif
