#include "shard_runtime/optim/optim.h"

static int n_states(const struct fsdp_optimizer_options *options)
{
    return options->momentum > 0 ? 1 : 0;
}

static void update(struct numerics *numerics, struct device_stream *stream,
                   const struct fsdp_optimizer_options *options, const struct numerics_update *updates,
                   size_t n_updates, uint64_t step)
{
    const struct numerics_sgd sgd = {
        .updates = updates, .n_updates = n_updates, .momentum = options->momentum, .step = step
    };

    numerics->ops->sgd(numerics, stream, &sgd);
}

const struct optim_ops optim_sgd_ops = { .state_names = { "momentum_buffer" },
                                         .n_states = n_states,
                                         .update = update };
