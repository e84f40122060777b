/*
 * AdamW over a list of shards: Loshchilov and Hutter, ICLR 2019, Algorithm 2, with lr scaling the decay. The lines and
 * their roundings are numerics/ref_optim.c's, so that a run on the GPU keeps the CPU's bits.
 */
#include <math.h>

#include "shard_runtime/cuda/kernels/optimizer.h"

namespace
{

struct adamw_scalars {
    float keep, mix1, beta2, mix2, root_fix2, eps, step_size;
};

__global__ void __launch_bounds__(BATCH_THREADS) adamw_chunks(batch<struct kernel_adamw_tensor> list, adamw_scalars s,
                                                              struct kernel_step step)
{
    const int entry = entry_of_block(list);
    const struct kernel_adamw_tensor &tensor = list.at[entry];
    const float scale = gradient_scale(step);
    size_t first, end;

    chunk_of_block(list, entry, OPTIMIZER_CHUNK, &first, &end);
    for (size_t i = first + threadIdx.x; i < end; i += BATCH_THREADS) {
        const float g = times(read_elem(tensor.grad, tensor.grad_dtype, i), scale);
        const float m = plus(tensor.m[i], times(s.mix1, plus(g, -tensor.m[i])));
        const float v = plus(times(tensor.v[i], s.beta2), times(times(s.mix2, g), g));
        const float move = times(s.step_size, m / plus(sqrtf(v) / s.root_fix2, s.eps));
        const float param = plus(times(tensor.param[i], s.keep), -move);

        tensor.m[i] = m;
        tensor.v[i] = v;
        tensor.param[i] = param;
        write_copy(tensor, step, i, param);
    }
}

} // namespace

int kernel_adamw(struct CUstream_st *stream, const struct kernel_adamw_tensor *tensors, size_t n_tensors,
                 const struct adamw *h, const struct kernel_step *step)
{
    const double fix1 = 1 - pow(h->beta1, static_cast<double>(step->step));
    const double fix2 = 1 - pow(h->beta2, static_cast<double>(step->step));
    const adamw_scalars s = { static_cast<float>(1 - h->lr * h->weight_decay), static_cast<float>(1 - h->beta1),
                              static_cast<float>(h->beta2), static_cast<float>(1 - h->beta2),
                              static_cast<float>(sqrt(fix2)), static_cast<float>(h->eps),
                              static_cast<float>(h->lr / fix1) };

    for (size_t i = 0; i < n_tensors; i++)
        if (!is_float_dtype(tensors[i].grad_dtype))
            return KERNEL_INVALID;
    return each_batch(tensors, n_tensors, OPTIMIZER_CHUNK,
                      [&](const batch<struct kernel_adamw_tensor> &list, unsigned blocks, unsigned) {
                          return LAUNCH(adamw_chunks, blocks, BATCH_THREADS, 0, stream, list, s, *step);
                      });
}
