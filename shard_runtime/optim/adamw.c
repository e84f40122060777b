#include "shard_runtime/optim/optim.h"

static int n_states(const struct fsdp_optimizer_options *options)
{
    (void)options;
    return 2;
}

static void update(struct numerics *numerics, struct device_stream *stream,
                   const struct fsdp_optimizer_options *options, const struct optim_tensor *tensor, double lr,
                   float grad_scale, uint64_t step)
{
    const struct adamw h = { .lr = lr,
                             .beta1 = options->betas[0],
                             .beta2 = options->betas[1],
                             .eps = options->eps,
                             .weight_decay = optim_decay(options, tensor->n_dims) };

    numerics->ops->adamw(numerics, stream, tensor->param, tensor->grad, tensor->state[0], tensor->state[1],
                         tensor->n_elems, &h, grad_scale, step);
}

const struct optim_ops optim_adamw_ops = { .state_names = { "exp_avg", "exp_avg_sq" },
                                           .n_states = n_states,
                                           .update = update };
