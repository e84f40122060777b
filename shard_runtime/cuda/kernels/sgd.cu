/*
 * SGD over a list of shards, as torch.optim.SGD; lines and roundings are numerics/ref_optim.c's.
 */
#include "shard_runtime/cuda/kernels/optimizer.h"

namespace
{

struct sgd_scalars {
    float lr, momentum, decay;
};

__global__ void __launch_bounds__(BATCH_THREADS) sgd_chunks(batch<struct kernel_adamw_tensor> list, sgd_scalars s,
                                                            struct kernel_step step)
{
    const int entry = entry_of_block(list);
    const struct kernel_adamw_tensor &tensor = list.at[entry];
    const float scale = gradient_scale(step);
    size_t first, end;

    chunk_of_block(list, entry, OPTIMIZER_CHUNK, &first, &end);
    for (size_t i = first + threadIdx.x; i < end; i += BATCH_THREADS) {
        const float old = tensor.param[i];
        float g = plus(times(read_elem(tensor.grad, tensor.grad_dtype, i), scale), times(s.decay, old)), param;

        if (tensor.m != NULL) {
            g = step.step == 1 ? g : plus(times(s.momentum, tensor.m[i]), g);
            tensor.m[i] = g;
        }
        param = plus(old, -times(s.lr, g));
        tensor.param[i] = param;
        write_copy(tensor, step, i, param);
    }
}

} // namespace

int kernel_sgd(struct CUstream_st *stream, const struct kernel_adamw_tensor *tensors, size_t n_tensors,
               const struct sgd *h, const struct kernel_step *step)
{
    const sgd_scalars s = { static_cast<float>(h->lr), static_cast<float>(h->momentum),
                            static_cast<float>(h->weight_decay) };

    for (size_t i = 0; i < n_tensors; i++)
        if (!is_float_dtype(tensors[i].grad_dtype))
            return KERNEL_INVALID;
    return each_batch(tensors, n_tensors, OPTIMIZER_CHUNK,
                      [&](const batch<struct kernel_adamw_tensor> &list, unsigned blocks, unsigned) {
                          return LAUNCH(sgd_chunks, blocks, BATCH_THREADS, 0, stream, list, s, *step);
                      });
}
