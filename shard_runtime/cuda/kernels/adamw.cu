/*
 * AdamW over a list of shards: Loshchilov and Hutter, ICLR 2019, Algorithm 2, with lr scaling the decay. The
 * lines and their roundings are numerics/ref_optim.c's, so that a run on the GPU keeps the CPU's bits.
 */
#include <math.h>

#include "shard_runtime/cuda/kernels/optimizer.h"

namespace
{

struct adamw_scalars {
    float mix1, beta2, mix2, root_fix2, eps;
};

template <class List>
__global__ void __launch_bounds__(BATCH_THREADS) adamw_chunks(READ_ONLY(List) list, adamw_scalars s)
{
    const unsigned entry = entry_of_block(list);
    const struct optimizer_entry &tensor = list.at[entry];
    size_t first, end;

    chunk_of_block(list, entry, OPTIMIZER_CHUNK, &first, &end);
    chunk_each<OPTIMIZER_GROUP>(first, end, in_optimizer_groups(tensor), [&](auto w, size_t i) {
        constexpr int M = decltype(w)::value;
        const group<float, M> grad = read_group<M>(tensor.grad, tensor.grad_dtype, i);
        group<float, M> m = load_group<M>(tensor.m + i), v = load_group<M>(tensor.v + i);
        group<float, M> param = load_group<M>(tensor.param + i);

        for (int k = 0; k < M; k++) {
            const float g = times(grad.at[k], tensor.grad_scale);
            float move;

            m.at[k] = plus(m.at[k], times(s.mix1, plus(g, -m.at[k])));
            v.at[k] = plus(times(v.at[k], s.beta2), times(times(s.mix2, g), g));
            move = times(tensor.rate, m.at[k] / plus(sqrtf(v.at[k]) / s.root_fix2, s.eps));
            param.at[k] = plus(times(param.at[k], tensor.decay), -move);
        }
        store_group<M>(tensor.m + i, m);
        store_group<M>(tensor.v + i, v);
        store_group<M>(tensor.param + i, param);
    });
}

} // namespace

int kernel_adamw(struct CUstream_st *stream, const struct numerics_adamw *run)
{
    const double fix1 = 1 - pow(run->beta1, static_cast<double>(run->step));
    const double fix2 = 1 - pow(run->beta2, static_cast<double>(run->step));
    const adamw_scalars s = { static_cast<float>(1 - run->beta1), static_cast<float>(run->beta2),
                              static_cast<float>(1 - run->beta2), static_cast<float>(sqrt(fix2)),
                              static_cast<float>(run->eps) };

    if (!can_update(run->updates, run->n_updates))
        return KERNEL_INVALID;
    return each_batch<struct optimizer_entry>(
        run->n_updates, OPTIMIZER_CHUNK,
        [&](size_t i) {
            const struct numerics_update *u = &run->updates[i];

            return optimizer_entry_of(u, u->lr / fix1, 1 - u->lr * u->weight_decay);
        },
        [&](const auto &list, unsigned blocks, struct batch_place) {
            typedef list_type<decltype(list)> List;

            return blocks == 0 ? KERNEL_OK
                               : LAUNCH(adamw_chunks<List>, blocks, BATCH_THREADS, 0, stream, list, s);
        });
}
