/* What every back end asks of a struct fused_attention_desc. */
#ifndef NUMERICS_ATTENTION_DESC_H
#define NUMERICS_ATTENTION_DESC_H

#include "shard_runtime/numerics/numerics.h"

/** FSDP_ERR_ARG, with the field, unless all strides hold a position and the sizes are at least 1. */
enum fsdp_status attention_desc_check(const struct fused_attention_desc *desc, struct fsdp_err *err);

/** Keys that query i sees. */
static inline size_t attention_keys(const struct attention_desc *shape, size_t i)
{
    return shape->causal ? i + 1 : shape->seq;
}

/** The element of a tensor of that stride at which head h of position t of sample b begins. */
static inline size_t attention_at(const struct attention_desc *shape, size_t stride, size_t b, size_t t,
                                  size_t h)
{
    return (b * shape->seq + t) * stride + h * shape->head_dim;
}

#endif
