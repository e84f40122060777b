/* What every back end needs to know of a struct fused_attention_desc. */
#ifndef NUMERICS_ATTENTION_DESC_H
#define NUMERICS_ATTENTION_DESC_H

#include "shard_runtime/numerics/numerics.h"

/**
 * Checks a description. FSDP_ERR_ARG, with the field in the message, if a size is 0 or a stride is shorter
 * than one position.
 */
enum fsdp_status attention_desc_check(const struct fused_attention_desc *desc, struct fsdp_err *err);

/** Returns whether one preparation serves both. */
static inline bool attention_desc_same(const struct fused_attention_desc *a,
                                       const struct fused_attention_desc *b)
{
    return a->shape.batch == b->shape.batch && a->shape.seq == b->shape.seq &&
           a->shape.heads == b->shape.heads && a->shape.head_dim == b->shape.head_dim &&
           a->shape.causal == b->shape.causal && a->dtype == b->dtype && a->scale == b->scale &&
           a->drops == b->drops && a->q_stride == b->q_stride && a->k_stride == b->k_stride &&
           a->v_stride == b->v_stride && a->out_stride == b->out_stride;
}

/** Returns how many keys query i sees, beginning with the first. */
static inline size_t attention_keys(const struct attention_desc *shape, size_t i)
{
    return shape->causal ? i + 1 : shape->seq;
}

/**
 * Returns the index of the element at which head h of position t of sample b begins, in a tensor of that
 * stride.
 */
static inline size_t attention_at(const struct attention_desc *shape, size_t stride, size_t b, size_t t,
                                  size_t h)
{
    return (b * shape->seq + t) * stride + h * shape->head_dim;
}

#endif
