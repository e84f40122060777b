/*
 * Attention backward in float32 FMA. Two passes of one shape: blocks own queries and write dq, or own keys
 * and write dk and dv. With (a1, a2) the own rows' q and dout (or k and v) and (b1, b2) the others' k and v
 * (or q and dout),
 *   s = scale a1 b1^T   P = exp(s - lse)   dP = dropout'(a2 b2^T)   dS = P (dP - delta)
 *   dq or dk = scale dS b1     dv = dropout(P) b2
 * One tile in shared memory holds b1, b2 and b1 again by turns, so that head_dim 512 still fits.
 */
#include <math.h>

#include "shard_runtime/cuda/kernels/attention_plain.h"

namespace
{

template <int D> constexpr size_t shared_floats()
{
    return static_cast<size_t>((2 * PLAIN_OWN + WARP) * plain_row<D>::ELEMS + 2 * PLAIN_OWN * WARP);
}

template <bool OWNS_QUERIES, int D, class T>
__global__ void __launch_bounds__(PLAIN_THREADS) attention_plain_gradient(attention_call<T> call)
{
    constexpr int STEP = plain_row<D>::ELEMS;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = attention_tile(PLAIN_OWN);
    const int begin = call.causal && !OWNS_QUERIES ? first / WARP * WARP : 0;
    const int end =
        call.causal && OWNS_QUERIES && first + PLAIN_OWN < call.seq ? first + PLAIN_OWN : call.seq;
    const size_t first_row = attention_first(call);
    float *own1 = block_shared<float>(), *own2 = own1 + PLAIN_OWN * STEP, *other = own2 + PLAIN_OWN * STEP;
    float *ds = other + WARP * STEP + warp * PLAIN_ROWS * WARP, *dropped = ds + PLAIN_OWN * WARP;
    float sum1[PLAIN_ROWS][D] = {}, sum2[PLAIN_ROWS][D] = {}, p[PLAIN_ROWS], factor[PLAIN_ROWS];
    /*
     * if queries are owned: values of the owned rows; if keys are: every element is that of the lane's query
     */
    float lse[PLAIN_ROWS], delta[PLAIN_ROWS];

    UNROLL
    for (int r = 0; r < PLAIN_ROWS; r++) {
        const int query = first + warp * PLAIN_ROWS + r;

        lse[r] = OWNS_QUERIES && query < call.seq ? call.lse[first_row + query] : 0.0f;
        delta[r] = OWNS_QUERIES && query < call.seq ? call.delta[first_row + query] : 0.0f;
    }
    plain_load<D>(own1, OWNS_QUERIES ? call.q : call.k, call, first, PLAIN_OWN);
    plain_load<D>(own2, OWNS_QUERIES ? call.dout : call.v, call, first, PLAIN_OWN);
    for (int tile = begin; tile < end; tile += WARP) {
        if (!OWNS_QUERIES && tile + lane < call.seq) {
            const float its_lse = call.lse[first_row + tile + lane],
                        its_delta = call.delta[first_row + tile + lane];

            UNROLL
            for (int r = 0; r < PLAIN_ROWS; r++) {
                lse[r] = its_lse;
                delta[r] = its_delta;
            }
        }
        block_barrier();
        plain_load<D>(other, OWNS_QUERIES ? call.k : call.q, call, tile, WARP);
        block_barrier();
        UNROLL
        for (int r = 0; r < PLAIN_ROWS; r++) {
            const int row = warp * PLAIN_ROWS + r;
            const int query = OWNS_QUERIES ? first + row : tile + lane,
                      key = OWNS_QUERIES ? tile + lane : first + row;
            const bool sees = attention_sees(call, query, key);
            const float score = plain_dot<D>(own1 + row * STEP, other + lane * STEP);

            p[r] = sees ? expf(call.scale * score - lse[r]) : 0.0f;
            factor[r] = sees && call.dropped.on ? drop_factor(call.dropped, first_row + query, key) : 1.0f;
            dropped[r * WARP + lane] = p[r] * factor[r];
        }
        block_barrier();
        plain_load<D>(other, OWNS_QUERIES ? call.v : call.dout, call, tile, WARP);
        block_barrier();
        UNROLL
        for (int r = 0; r < PLAIN_ROWS; r++) {
            const int row = warp * PLAIN_ROWS + r, query = OWNS_QUERIES ? first + row : tile + lane;
            const float dp = factor[r] * plain_dot<D>(own2 + row * STEP, other + lane * STEP);

            ds[r * WARP + lane] = query < call.seq ? p[r] * (dp - delta[r]) : 0.0f;
            if (!OWNS_QUERIES)
                plain_add_rows<D>(sum2[r], dropped + r * WARP, other);
        }
        block_barrier();
        plain_load<D>(other, OWNS_QUERIES ? call.k : call.q, call, tile, WARP);
        block_barrier();
        UNROLL
        for (int r = 0; r < PLAIN_ROWS; r++)
            plain_add_rows<D>(sum1[r], ds + r * WARP, other);
    }
    UNROLL
    for (int r = 0; r < PLAIN_ROWS; r++) {
        const int row = first + warp * PLAIN_ROWS + r;

        if (OWNS_QUERIES) {
            plain_write<D>(call.dq, call, row, sum1[r], call.scale);
            continue;
        }
        if (call.dk.data != NULL)
            plain_write<D>(call.dk, call, row, sum1[r], call.scale);
        if (call.dv.data != NULL)
            plain_write<D>(call.dv, call, row, sum2[r], 1.0f);
    }
}

template <class T> int launch_plain(struct CUstream_st *stream, const attention_call<T> &call, dim3 heads)
{
    return plain_by_width(call.head_dim, [&](auto row) {
        constexpr int D = plain_width(decltype(row)());
        const dim3 grid(blocks_of(static_cast<size_t>(call.seq), PLAIN_OWN), heads.y, heads.z);
        const size_t shared = shared_floats<D>() * sizeof(float);
        int status = KERNEL_OK;

        if (call.dk.data != NULL || call.dv.data != NULL)
            status =
                LAUNCH((attention_plain_gradient<false, D, T>), grid, PLAIN_THREADS, shared, stream, call);
        if (status == KERNEL_OK && call.dq.data != NULL)
            status =
                LAUNCH((attention_plain_gradient<true, D, T>), grid, PLAIN_THREADS, shared, stream, call);
        return status;
    });
}

} // namespace

int attention_plain_backward(struct CUstream_st *stream, const attention_call<float> &call, dim3 heads)
{
    return launch_plain(stream, call, heads);
}

int attention_plain_backward(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads)
{
    return launch_plain(stream, call, heads);
}
