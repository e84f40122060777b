/*
 * Attention (numerics.h, struct fused_attention_desc) as graphs of the operations that cuDNN's fused engines look for. Facts of that
 * pattern - which operations, in which order, with which types between them - are of NVIDIA's guide to the graph API and of what its
 * own front end builds.
 */
#ifndef CUDA_CUDNN_ATTENTION_H
#define CUDA_CUDNN_ATTENTION_H

#include "shard_runtime/cuda/cudnn_graph.h"
#include "shard_runtime/numerics/numerics.h"

/* Which pointer a tensor's memory is. */
enum cudnn_slot {
    CUDNN_Q,
    CUDNN_K,
    CUDNN_V,
    CUDNN_OUT,
    CUDNN_LSE,
    CUDNN_DOUT,
    CUDNN_DQ,
    CUDNN_DK,
    CUDNN_DV,
    CUDNN_SLOTS
};

/* `desc` is one that cuda_cudnn_refuses() does not refuse. */
/** out and lse of q, k, v. */
void cudnn_attention_forward(const struct fused_attention_desc *desc, struct cudnn_graph *graph);
/** dq, dk and dv of q, k, v, out, dout and lse. */
void cudnn_attention_backward(const struct fused_attention_desc *desc, struct cudnn_graph *graph);

#endif
