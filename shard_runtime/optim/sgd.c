#include "shard_runtime/optim/optim.h"

static int n_states(const struct fsdp_optimizer_options *options)
{
    return options->momentum > 0 ? 1 : 0;
}

static void update(struct numerics *numerics, struct device_stream *stream,
                   const struct fsdp_optimizer_options *options, const struct optim_tensor *tensor, double lr,
                   float grad_scale, uint64_t step)
{
    const struct sgd h = { .lr = lr,
                           .momentum = options->momentum,
                           .weight_decay = optim_decay(options, tensor->n_dims) };

    numerics->ops->sgd(numerics, stream, tensor->param, tensor->grad, tensor->state[0], tensor->n_elems, &h,
                       grad_scale, step);
}

const struct optim_ops optim_sgd_ops = { .state_names = { "momentum_buffer" },
                                         .n_states = n_states,
                                         .update = update };
