#include "shard_runtime/optim/optim.h"

static int n_states(const struct fsdp_optimizer_options *options)
{
    return options->momentum > 0 ? 1 : 0;
}

static void update(struct numerics *numerics, struct device_stream *stream,
                   const struct fsdp_optimizer_options *options, const struct numerics_update *updates,
                   size_t n_updates, uint64_t step)
{
    const struct sgd h = { .momentum = options->momentum };

    numerics_sgd(numerics, stream, updates, n_updates, &h, step);
}

const struct optim_ops optim_sgd_ops = { .state_names = { "momentum_buffer" },
                                         .n_states = n_states,
                                         .update = update };
