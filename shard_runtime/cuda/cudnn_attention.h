/*
 * Attention (struct fused_attention_desc) as graphs of the operations that cuDNN's fused engines recognise.
 * NVIDIA's guide to the graph API, and its front end, determine the operations, their order, and the types
 * between them. Pure.
 */
#ifndef CUDA_CUDNN_ATTENTION_H
#define CUDA_CUDNN_ATTENTION_H

#include "shard_runtime/cuda/cudnn_graph.h"
#include "shard_runtime/numerics/numerics.h"

/* Which of the caller's pointers holds a tensor. */
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

/* Both functions require a `desc` for which cuda_cudnn_refuses() returns NULL. */
/** Describe forward: out and lse from q, k and v. */
void cudnn_attention_forward(const struct fused_attention_desc *desc, struct cudnn_graph *graph);
/** Describe backward: dq, dk and dv from q, k, v, out, dout and lse. */
void cudnn_attention_backward(const struct fused_attention_desc *desc, struct cudnn_graph *graph);

#endif
