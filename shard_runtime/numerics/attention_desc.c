#include "shard_runtime/numerics/attention_desc.h"

enum fsdp_status attention_desc_check(const struct fused_attention_desc *desc, struct fsdp_err *err)
{
    const struct attention_desc *d = &desc->shape;
    const size_t strides[] = { desc->q_stride, desc->k_stride, desc->v_stride, desc->out_stride };
    static const char *const names[] = { "q", "k", "v", "out" };

    if (d->batch == 0 || d->seq == 0 || d->heads == 0 || d->head_dim == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "attention: (%zu, %zu, %zu, %zu) has nothing in it", d->batch,
                         d->seq, d->heads, d->head_dim);
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        if (strides[i] < d->heads * d->head_dim)
            return fsdp_fail(err, FSDP_ERR_ARG,
                             "attention: a position of %s takes %zu elements, its stride is %zu", names[i],
                             d->heads * d->head_dim, strides[i]);
    return FSDP_OK;
}
