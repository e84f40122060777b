/*
 * What the two optimizers share: a tensor as their kernels see it, the gradient as it is scaled, the bfloat16 copy as
 * it is rounded.
 */
#ifndef CUDA_KERNELS_OPTIMIZER_H
#define CUDA_KERNELS_OPTIMIZER_H

#include "shard_runtime/cuda/kernels/batch.h"
#include "shard_runtime/cuda/kernels/philox.h"

constexpr size_t OPTIMIZER_CHUNK = 4096; /* elements a block */

/* struct kernel_update with what of its rates can be computed once. */
struct optimizer_entry {
    float *param, *m, *v;
    const void *grad;
    uint16_t *copy;
    size_t n_elems;
    uint64_t first, key;
    enum fsdp_dtype grad_dtype;
    float rate, decay; /* AdamW: lr over the first moment's bias, 1 - lr * decay; SGD: lr, decay */
    float grad_scale;
};

static inline struct optimizer_entry optimizer_entry_of(const struct kernel_update *update, double rate,
                                                        double decay)
{
    return { update->param,
             update->m,
             update->v,
             update->grad,
             update->copy,
             update->n_elems,
             update->first,
             update->key,
             update->grad_dtype,
             static_cast<float>(rate),
             static_cast<float>(decay),
             update->grad_scale };
}

static inline bool can_update(const struct kernel_update *updates, size_t n_updates)
{
    for (size_t i = 0; i < n_updates; i++)
        if (!is_float_dtype(updates[i].grad_dtype))
            return false;
    return true;
}

__device__ __forceinline__ float gradient_scale(const struct optimizer_entry &tensor,
                                                const struct kernel_step &step)
{
    return step.grad_scale_device == NULL ? tensor.grad_scale
                                          : times(tensor.grad_scale, *step.grad_scale_device);
}

/* Up with the probability that the lost bits say: 16 random bits are added below the cut. */
__device__ __forceinline__ uint16_t round_stochastic(float value, uint32_t random)
{
    const unsigned bits = bits_of(value);

    if ((bits & 0x7f800000u) == 0x7f800000u)
        return static_cast<uint16_t>(bits >> 16 | ((bits & 0x007fffffu) != 0 ? 0x40u : 0u));
    return static_cast<uint16_t>((bits + (random & 0xffffu)) >> 16);
}

__device__ __forceinline__ void write_copy(const struct optimizer_entry &tensor,
                                           const struct kernel_step &step, size_t i, float value)
{
    bf16 rounded;

    if (tensor.copy == NULL)
        return;
    if (step.stochastic_rounding) {
        const uint64_t at = tensor.first + i;

        rounded.bits = round_stochastic(value, philox(tensor.key, step.step, at / 4).at[at % 4]);
    } else {
        narrow(value, &rounded);
    }
    tensor.copy[i] = rounded.bits;
}

#endif
