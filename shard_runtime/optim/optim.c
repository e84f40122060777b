#include "shard_runtime/optim/optim.h"

#include <math.h>

#include "shard_runtime/optim/state_window.h"

const struct optim_ops *optim_find(enum fsdp_optimizer_kind kind)
{
    return kind == FSDP_SGD ? &optim_sgd_ops : &optim_adamw_ops;
}

double optim_decay(const struct fsdp_optimizer_options *options, int n_dims)
{
    return options->decay == FSDP_DECAY_MATRICES && n_dims < 2 ? 0.0 : options->weight_decay;
}

static bool in_range(double value, double low, double below)
{
    return value >= low && value < below; /* false for what is no number */
}

bool optim_is_rate(double lr)
{
    return in_range(lr, 0, INFINITY);
}

enum fsdp_status optim_check(const struct fsdp_optimizer_options *options, struct fsdp_err *err)
{
    if (options->kind != FSDP_ADAMW && options->kind != FSDP_SGD)
        return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: unknown kind %d", (int)options->kind);
    if ((unsigned)options->decay > FSDP_DECAY_MATRICES || (unsigned)options->schedule > FSDP_COSINE)
        return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: unknown decay %d or schedule %d", (int)options->decay,
                         (int)options->schedule);
    if (!optim_is_rate(options->lr))
        return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: lr %g is no number from 0 on", options->lr);
    if (!in_range(options->weight_decay, 0, INFINITY))
        return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: weight_decay %g is no number from 0 on",
                         options->weight_decay);
    for (int i = 0; i < 2 && options->kind == FSDP_ADAMW; i++)
        if (!in_range(options->betas[i], 0, 1))
            return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: beta %g is not in [0, 1)", options->betas[i]);
    if (options->kind == FSDP_ADAMW && !in_range(options->eps, 0, INFINITY))
        return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: eps %g is no number from 0 on", options->eps);
    if (options->kind == FSDP_SGD && !in_range(options->momentum, 0, INFINITY))
        return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: momentum %g is no number from 0 on",
                         options->momentum);
    if (options->schedule != FSDP_CONSTANT && options->total_steps == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: a schedule that ends needs total_steps");
    return FSDP_OK;
}

void optim_need(const struct fsdp_optimizer_options *options, size_t n_elems, size_t *memory_bytes,
                uint64_t *file_bytes)
{
    const int n_states = optim_find(options->kind)->n_states(options);
    const struct state_window window = state_window_make(n_elems, n_states, options->offload_window_bytes);
    const bool offloads = options->offload_dir != NULL;

    *memory_bytes = offloads ? window.memory_bytes : n_elems * (size_t)n_states * sizeof(float);
    *file_bytes = offloads ? window.file_bytes : 0;
}

struct fsdp_optimizer_options fsdp_optimizer_defaults(void)
{
    return (struct fsdp_optimizer_options){
        .kind = FSDP_ADAMW,
        .lr = 1e-3,
        .betas = { 0.9, 0.95 },
        .eps = 1e-8,
        .weight_decay = 0.1,
        .decay = FSDP_DECAY_ALL,
        .schedule = FSDP_CONSTANT,
    };
}
