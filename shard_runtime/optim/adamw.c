#include "shard_runtime/optim/optim.h"

static int n_states(const struct fsdp_optimizer_options *options)
{
    (void)options;
    return 2;
}

static void update(struct numerics *numerics, struct device_stream *stream,
                   const struct fsdp_optimizer_options *options, const struct numerics_update *updates,
                   size_t n_updates, uint64_t step)
{
    const struct numerics_adamw adamw = { .updates = updates,
                                          .n_updates = n_updates,
                                          .beta1 = options->betas[0],
                                          .beta2 = options->betas[1],
                                          .eps = options->eps,
                                          .step = step };

    numerics->ops->adamw(numerics, stream, &adamw);
}

const struct optim_ops optim_adamw_ops = { .state_names = { "exp_avg", "exp_avg_sq" },
                                           .n_states = n_states,
                                           .update = update };
