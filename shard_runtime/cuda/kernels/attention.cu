/*
 * Attention's launchers: which kernels serve a call, and the row sums delta = sum_e dout * out that backward
 * needs.
 */
#include "shard_runtime/cuda/kernels/attention.h"

#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

enum { MAX_HEAD_DIM = 512, MAX_GRID = 65535 };

/* One warp computes one row of one sample and head. */
template <class T>
__global__ void __launch_bounds__(ROW_THREADS) attention_delta(attention_call<T> call, float *delta)
{
    const int t = static_cast<int>(blockIdx.x) * ROW_WARPS + static_cast<int>(threadIdx.x) / WARP;
    float sum = 0;

    if (t >= call.seq)
        return; /* the whole warp */
    row_each<1>(static_cast<size_t>(call.head_dim), [&](size_t e) {
        sum += widen(attention_row(call.out, call, t)[e]) * widen(attention_row(call.dout, call, t)[e]);
    });
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        delta[attention_first(call) + static_cast<size_t>(t)] = sum;
}

bool is_served(const struct fused_attention_desc *desc)
{
    const size_t dim = desc->shape.heads * desc->shape.head_dim;

    return desc->shape.head_dim >= 1 && desc->shape.head_dim <= MAX_HEAD_DIM &&
           desc->shape.heads <= MAX_GRID && desc->shape.batch <= MAX_GRID &&
           desc->shape.seq <= INT32_MAX / 2 && desc->q_stride >= dim && desc->k_stride >= dim &&
           desc->v_stride >= dim && desc->out_stride >= dim;
}

bool tiles_serve(const struct fused_attention_desc *desc)
{
    const size_t strides = desc->q_stride | desc->k_stride | desc->v_stride | desc->out_stride;

    return (desc->shape.head_dim == 64 || desc->shape.head_dim == 128) && strides % 8 == 0;
}

template <class T>
attention_call<T> call_of(const struct fused_attention_desc *desc, const void *q, const void *k,
                          const void *v, const void *out, const struct dropout *dropout)
{
    attention_call<T> call = {};

    call.q = { static_cast<const T *>(q), desc->q_stride };
    call.k = { static_cast<const T *>(k), desc->k_stride };
    call.v = { static_cast<const T *>(v), desc->v_stride };
    call.out = { static_cast<const T *>(out), desc->out_stride };
    call.seq = static_cast<int>(desc->shape.seq);
    call.heads = static_cast<int>(desc->shape.heads);
    call.head_dim = static_cast<int>(desc->shape.head_dim);
    call.scale = desc->scale;
    call.causal = desc->shape.causal;
    call.dropped = drop_of(dropout);
    return call;
}

template <class T>
int run_forward(struct CUstream_st *stream, const struct fused_attention_desc *desc,
                const struct fused_attention_forward *run, bool plain, dim3 heads)
{
    attention_call<T> call = call_of<T>(desc, run->q, run->k, run->v, NULL, run->dropout);

    call.to = { static_cast<T *>(run->out), desc->out_stride };
    call.lse_to = run->lse;
    if constexpr (sizeof(T) == 2) {
        if (!plain && tiles_serve(desc) && is_packed(run->q) && is_packed(run->k) && is_packed(run->v) &&
            is_packed(run->out))
            return attention_tiles(stream, call, heads);
    }
    return attention_plain(stream, call, heads);
}

template <class T>
int run_backward(struct CUstream_st *stream, const struct fused_attention_desc *desc,
                 const struct fused_attention_backward *run, bool plain, dim3 heads)
{
    attention_call<T> call = call_of<T>(desc, run->q, run->k, run->v, run->out, run->dropout);
    float *delta = static_cast<float *>(run->scratch);
    int status;

    call.dout = { static_cast<const T *>(run->dout), desc->out_stride };
    call.dq = { static_cast<T *>(run->dq), desc->q_stride };
    call.dk = { static_cast<T *>(run->dk), desc->k_stride };
    call.dv = { static_cast<T *>(run->dv), desc->v_stride };
    call.lse = run->lse;
    call.delta = delta;
    status = LAUNCH(attention_delta<T>, dim3(blocks_of(desc->shape.seq, ROW_WARPS), heads.y, heads.z),
                    ROW_THREADS, 0, stream, call, delta);
    if (status != KERNEL_OK)
        return status;
    if constexpr (sizeof(T) == 2) {
        if (!plain && tiles_serve(desc) && is_packed(run->q) && is_packed(run->k) && is_packed(run->v) &&
            is_packed(run->dout) && is_packed(run->dq) && is_packed(run->dk) && is_packed(run->dv))
            return attention_tiles_backward(stream, call, heads);
    }
    return attention_plain_backward(stream, call, heads);
}

} // namespace

int kernel_attention(struct CUstream_st *stream, const struct fused_attention_desc *desc,
                     const struct fused_attention_forward *run, bool plain)
{
    const dim3 heads(1, static_cast<unsigned>(desc->shape.heads), static_cast<unsigned>(desc->shape.batch));

    if (!is_served(desc))
        return KERNEL_INVALID;
    if (desc->shape.batch == 0 || desc->shape.heads == 0 || desc->shape.seq == 0)
        return KERNEL_OK;
    return by_dtype(desc->dtype,
                    [&](auto type) { return run_forward<decltype(type)>(stream, desc, run, plain, heads); });
}

int kernel_attention_backward(struct CUstream_st *stream, const struct fused_attention_desc *desc,
                              const struct fused_attention_backward *run, bool plain)
{
    const dim3 heads(1, static_cast<unsigned>(desc->shape.heads), static_cast<unsigned>(desc->shape.batch));

    if (!is_served(desc))
        return KERNEL_INVALID;
    if (desc->shape.batch == 0 || desc->shape.heads == 0 || desc->shape.seq == 0)
        return KERNEL_OK;
    return by_dtype(desc->dtype,
                    [&](auto type) { return run_backward<decltype(type)>(stream, desc, run, plain, heads); });
}
