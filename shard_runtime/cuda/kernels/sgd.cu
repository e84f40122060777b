/*
 * SGD over a list of shards, as torch.optim.SGD; lines and roundings are numerics/ref_optim.c's.
 */
#include "shard_runtime/cuda/kernels/optimizer.h"

namespace
{

template <class List>
__global__ void __launch_bounds__(BATCH_THREADS)
    sgd_chunks(READ_ONLY(List) list, float momentum, bool first_step)
{
    const unsigned entry = entry_of_block(list);
    const struct optimizer_entry &tensor = list.at[entry];
    size_t first, end;

    chunk_of_block(list, entry, OPTIMIZER_CHUNK, &first, &end);
    chunk_each<OPTIMIZER_GROUP>(first, end, in_optimizer_groups(tensor), [&](auto w, size_t i) {
        constexpr int M = decltype(w)::value;
        const group<float, M> grad = read_group<M>(tensor.grad, tensor.grad_dtype, i);
        group<float, M> param = load_group<M>(tensor.param + i), m = {};

        if (tensor.m != NULL && !first_step)
            m = load_group<M>(tensor.m + i);
        for (int k = 0; k < M; k++) {
            float g = plus(times(grad.at[k], tensor.grad_scale), times(tensor.decay, param.at[k]));

            if (tensor.m != NULL)
                m.at[k] = g = first_step ? g : plus(times(momentum, m.at[k]), g);
            param.at[k] = plus(param.at[k], -times(tensor.rate, g));
        }
        if (tensor.m != NULL)
            store_group<M>(tensor.m + i, m);
        store_group<M>(tensor.param + i, param);
    });
}

} // namespace

int kernel_sgd(struct CUstream_st *stream, const struct numerics_sgd *run)
{
    if (!can_update(run->updates, run->n_updates))
        return KERNEL_INVALID;
    return each_batch<struct optimizer_entry>(
        run->n_updates, OPTIMIZER_CHUNK,
        [&](size_t i) {
            const struct numerics_update *u = &run->updates[i];

            return optimizer_entry_of(u, u->lr, u->weight_decay);
        },
        [&](const auto &list, unsigned blocks, struct batch_place) {
            typedef list_type<decltype(list)> List;

            return blocks == 0 ? KERNEL_OK
                               : LAUNCH(sgd_chunks<List>, blocks, BATCH_THREADS, 0, stream, list,
                                        static_cast<float>(run->momentum), run->step == 1);
        });
}
