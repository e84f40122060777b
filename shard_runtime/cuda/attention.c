/* Attention without its matrices, by our kernels: nothing is prepared but the description. */
#include <stdlib.h>

#include "shard_runtime/cuda/kernels/kernels.h"
#include "shard_runtime/cuda/numerics_state.h"

struct fused_attention {
    struct cuda_numerics *state;
    struct fused_attention_desc desc;
};

enum fsdp_status cuda_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                       struct fused_attention **out, size_t *forward_scratch,
                                       size_t *backward_scratch, struct fsdp_err *err)
{
    const size_t features = desc->shape.heads * desc->shape.head_dim;
    struct fused_attention *attention;

    *out = NULL;
    if (desc->q_stride < features || desc->k_stride < features || desc->v_stride < features ||
        desc->out_stride < features)
        return fsdp_fail(err, FSDP_ERR_ARG, "attention: a stride is shorter than its %zu features", features);
    if (desc->dtype != FSDP_F32 && desc->dtype != FSDP_BF16)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "attention of %s", fsdp_dtype_name(desc->dtype));
    attention = calloc(1, sizeof *attention);
    if (attention == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "attention: out of memory");
    attention->state = cuda_numerics_of(numerics);
    attention->desc = *desc;
    *forward_scratch = 0;
    *backward_scratch = kernel_attention_backward_scratch(desc);
    *out = attention;
    return FSDP_OK;
}

void cuda_attention_destroy(struct fused_attention *attention)
{
    free(attention);
}

enum fsdp_status cuda_attention_forward(struct fused_attention *attention, struct device_stream *stream,
                                        const struct fused_attention_forward *run, struct fsdp_err *err)
{
    return CUDA_TRY(cuda_state(attention->state->device),
                    (cudaError_t)kernel_attention(stream->cuda, &attention->desc, run, false), err);
}

enum fsdp_status cuda_attention_backward(struct fused_attention *attention, struct device_stream *stream,
                                         const struct fused_attention_backward *run, struct fsdp_err *err)
{
    return CUDA_TRY(cuda_state(attention->state->device),
                    (cudaError_t)kernel_attention_backward(stream->cuda, &attention->desc, run, false), err);
}
