/*
 * What the two optimizers share: a tensor as their kernels see it.
 */
#ifndef CUDA_KERNELS_OPTIMIZER_H
#define CUDA_KERNELS_OPTIMIZER_H

#include "shard_runtime/cuda/kernels/batch.h"

constexpr size_t OPTIMIZER_CHUNK = 4096; /* elements a block */

/*
 * The part of struct numerics_update that a kernel needs, with everything computed that depends on its rates
 * only.
 */
struct optimizer_entry {
    float *param, *m, *v;
    const void *grad;
    size_t n_elems;
    enum fsdp_dtype grad_dtype;
    /* AdamW: lr divided by the first moment's bias correction, and 1 - lr * decay; SGD: lr, and decay */
    float rate, decay;
    float grad_scale;
};

enum { OPTIMIZER_GROUP = 4 }; /* elements at once: 16 bytes of float32 */

__device__ __forceinline__ bool in_optimizer_groups(const struct optimizer_entry &tensor)
{
    return in_groups<OPTIMIZER_GROUP>(tensor.param) && in_groups<OPTIMIZER_GROUP>(tensor.m) &&
           in_groups<OPTIMIZER_GROUP>(tensor.v) &&
           (tensor.grad_dtype == FSDP_BF16
                ? in_groups<OPTIMIZER_GROUP>(static_cast<const bf16 *>(tensor.grad))
                : in_groups<OPTIMIZER_GROUP>(static_cast<const float *>(tensor.grad)));
}

static inline struct optimizer_entry optimizer_entry_of(const struct numerics_update *update, double rate,
                                                        double decay)
{
    return { update->param,
             update->m,
             update->v,
             update->grad,
             update->n_elems,
             update->grad_dtype,
             static_cast<float>(rate),
             static_cast<float>(decay),
             update->grad_scale };
}

static inline bool can_update(const struct numerics_update *updates, size_t n_updates)
{
    for (size_t i = 0; i < n_updates; i++)
        if (!is_float_dtype(updates[i].grad_dtype))
            return false;
    return true;
}

#endif
