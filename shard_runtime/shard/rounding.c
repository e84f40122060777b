#include "shard_runtime/shard/rounding.h"

#include "shard_runtime/core/rng.h"
#include "shard_runtime/shard/layout.h"

bool rounding_is_on(const struct plan_group *group)
{
    return group->param_dtype == FSDP_BF16 && group->unit->policy.precision.stochastic_rounding;
}

void rounding_begin(struct rounding *rounding, const struct rounding_draws *draws, struct device *device,
                    struct device_stream *stream)
{
    rounding->device = device;
    rounding->stream = stream;
    rounding->draws = *draws;
    rounding->n = 0;
}

void rounding_end(struct rounding *rounding)
{
    if (rounding->n > 0)
        rounding->device->ops->round_list(rounding->stream, rounding->at, rounding->n, rounding->draws.step);
    rounding->n = 0;
}

void rounding_add(struct rounding *rounding, const struct plan_param *param, int W, int rank,
                  const float *shard, uint16_t *to)
{
    const struct fsdp_parameter *p = param->parameter;
    const uint64_t key = rng_key(rng_key(rounding->draws.seed, "round"), p->name);
    struct layout_walk walk = layout_walk_of(p->whole_shape, p->n_dims, p->split.dim, p->split.n_parts,
                                             p->split.part, p->shard_dim, W, rank);
    struct layout_piece run;
    size_t filled = 0;

    while (layout_walk_next(&walk, &run)) {
        if (rounding->n == ROUNDING_MAX)
            rounding_end(rounding);
        rounding->at[rounding->n++] = (struct device_rounding){ .to = to + run.shard_at,
                                                                .from = shard + run.shard_at,
                                                                .n_elems = run.n_elems,
                                                                .key = key,
                                                                .first = run.whole_at };
        filled += run.n_elems;
    }
    if (filled < param->chunk_elems)
        rounding->device->ops->fill_zero(rounding->stream, to + filled,
                                         (param->chunk_elems - filled) * sizeof *to);
}
