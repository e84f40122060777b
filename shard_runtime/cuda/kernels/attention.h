/*
 * What the attention kernels share: the tensors of one call as a kernel takes them, and where each row is. A
 * block works on one head (blockIdx.y) of one sample (blockIdx.z).
 */
#ifndef CUDA_KERNELS_ATTENTION_H
#define CUDA_KERNELS_ATTENTION_H

#include "shard_runtime/cuda/kernels/number.h"
#include "shard_runtime/cuda/kernels/philox.h"

/* One tensor's (seq, head_dim) matrices: row t of (b, h) is at (b * seq + t) * stride + h * head_dim. */
template <class T> struct attention_rows {
    T *data;
    size_t stride;
};

template <class T> struct attention_call {
    attention_rows<const T> q, k, v, out, dout;
    attention_rows<T> to, dq, dk, dv; /* `to`: forward's out */
    const float *lse, *delta;         /* (batch, heads, seq) */
    float *lse_to;                    /* or NULL */
    int seq, heads, head_dim;
    float scale;
    bool causal;
    drop dropped;
};

template <class T, class U>
__device__ __forceinline__ T *attention_row(const attention_rows<T> &rows, const attention_call<U> &call,
                                            int t)
{
    return rows.data + (static_cast<size_t>(blockIdx.z) * call.seq + t) * rows.stride +
           static_cast<size_t>(blockIdx.y) * call.head_dim;
}

/** Number of the first row of the block's sample and head, in lse, delta and the mask of dropout. */
template <class T> __device__ __forceinline__ size_t attention_first(const attention_call<T> &call)
{
    return (static_cast<size_t>(blockIdx.z) * call.heads + blockIdx.y) * call.seq;
}

template <class T>
__device__ __forceinline__ bool attention_sees(const attention_call<T> &call, int query, int key)
{
    return query < call.seq && key < call.seq && (!call.causal || key <= query);
}

/**
 * Which `size` rows the block owns. With a causal mask later queries have more to do, so they start first.
 */
__device__ __forceinline__ int attention_tile(int size)
{
    return static_cast<int>(gridDim.x - 1 - blockIdx.x) * size;
}

/* Launchers, each in its file. They return KERNEL_OK or a cudaError_t. */
int attention_plain(struct CUstream_st *stream, const attention_call<float> &call, dim3 heads);
int attention_plain(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads);
int attention_plain_backward(struct CUstream_st *stream, const attention_call<float> &call, dim3 heads);
int attention_plain_backward(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads);
int attention_tiles(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads);
int attention_tiles_backward(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads);

#endif
