/* This file is linked into the plug-in too, so it includes nothing that the plug-in lacks. */
#include "shard_runtime/numerics/cuda_plan_attention.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/numerics/cuda_shapes.h"

enum {
    CUDNN_ELEMS = 8, /* 16 bytes of bfloat16 */
    CUDNN_MAX_HEAD_DIM = 128,
};

enum fsdp_status cuda_attention_choice(enum cuda_attention *out, struct fsdp_err *err)
{
    const char *value = getenv("FSDP_CUDA_ATTENTION");

    *out = CUDA_ATTENTION_OURS;
    if (value == NULL || value[0] == '\0' || strcmp(value, "ours") == 0)
        return FSDP_OK;
    if (strcmp(value, "auto") == 0)
        *out = CUDA_ATTENTION_AUTO;
    else if (strcmp(value, "cudnn") == 0)
        *out = CUDA_ATTENTION_CUDNN;
    else
        return fsdp_fail(err, FSDP_ERR_CONFIG, "FSDP_CUDA_ATTENTION=%s: not one of ours, auto, cudnn", value);
    return FSDP_OK;
}

const char *cuda_cudnn_refuses(const struct fused_attention_desc *desc)
{
    const size_t strides = desc->q_stride | desc->k_stride | desc->v_stride | desc->out_stride;

    if (desc->dtype != FSDP_BF16)
        return "only bfloat16 is asked of it";
    if (desc->drops)
        return "its dropout is not ours";
    if (desc->shape.head_dim > CUDNN_MAX_HEAD_DIM || desc->shape.head_dim % CUDNN_ELEMS != 0)
        return "heads are no multiple of 8 up to 128";
    if (strides % CUDNN_ELEMS != 0)
        return "strides are no multiples of 8";
    /*
     * In that case cuDNN's backward reads what follows the last key as if it were keys (NVIDIA/cudnn-frontend
     * issue 628: dq becomes NaN).
     */
    if (!desc->shape.causal && desc->shape.seq % CUDA_CUDNN_TILE_ROWS != 0)
        return "positions that are no multiple of 128, and no causal mask";
    if (desc->shape.batch == 0 || desc->shape.heads == 0 || desc->shape.seq == 0)
        return "there is nothing in it";
    return NULL;
}

void cuda_plan_attention_scratch(enum cuda_attention choice, const struct fused_attention_desc *desc,
                                 size_t *forward, size_t *backward)
{
    *forward = 0;
    *backward = cuda_attention_backward_bytes(desc->shape.batch * desc->shape.heads * desc->shape.seq);
    if (choice == CUDA_ATTENTION_OURS || cuda_cudnn_refuses(desc) != NULL)
        return;
    *forward = cuda_cudnn_forward_bytes(&desc->shape);
    *backward = cuda_cudnn_backward_bytes(&desc->shape);
}
