/* The inside of an optimizer, and the functions that checkpoints need in addition to <fsdp/optimizer.h>. */
#ifndef ENGINE_OPTIMIZER_H
#define ENGINE_OPTIMIZER_H

#include <fsdp/optimizer.h>

#include "shard_runtime/engine/model.h"
#include "shard_runtime/optim/offload.h"
#include "shard_runtime/optim/optim.h"
#include "shard_runtime/optim/rates.h"
#include "shard_runtime/shardfile/rows_store.h"

struct fsdp_optimizer {
    struct fsdp_model *model;
    const struct optim_ops *ops;
    struct optim_tensor *tensors;    /* one for each parameter that has a gradient */
    struct numerics_update *updates; /* room for the same number */
    int *params;                     /* for each tensor: the parameter's number in the model */
    struct optim_rates rates;        /* options of each tensor */
    char **names;                    /* (tensors, states) */
    int n_tensors, n_states;
    float *state[N_PLACES]; /* state in the same kind of memory as the shards */
    size_t state_bytes[N_PLACES];
    struct offload *offload; /* keeps the state in a file; NULL: it is in `state` */
    uint64_t step;
    /* called before shards or states change, on the thread that updates; NULL: no other code reads them */
    void (*before_update)(void *user);
    void *before_update_user;
};

/**
 * Returns the store that has the states, numbered as fsdp_optimizer_state() lists them. NULL: they are in
 * memory.
 */
const struct rows_store *optimizer_store(const struct fsdp_optimizer *optimizer);

/**
 * Checks that an optimizer whose state is in a file can update `root`. FSDP_ERR_UNSUPPORTED: on a device with
 * memory of its own (`apart`), parameters that are trained are not in host memory.
 */
enum fsdp_status optimizer_check_offload(const struct fsdp_optimizer_options *options,
                                         const struct fsdp_module *root, bool apart, struct fsdp_err *err);

#endif
