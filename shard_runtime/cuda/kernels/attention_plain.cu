/*
 * Attention forward in float32 FMA, for any head_dim to 512. Per warp 4 queries; a lane scores one key of
 * each tile of 32, then the same lanes own columns of the output. The maximum and the sum are kept as the
 * tiles go by (Milakov and Gimelshein, 2018).
 */
#include <math.h>

#include "shard_runtime/cuda/kernels/attention_plain.h"
#include "shard_runtime/cuda/kernels/reduce.h"

namespace
{

template <int D> constexpr size_t shared_floats()
{
    return static_cast<size_t>((PLAIN_OWN + WARP) * plain_row<D>::ELEMS + PLAIN_OWN * WARP);
}

template <int D, class T>
__global__ void __launch_bounds__(PLAIN_THREADS) attention_plain_rows(attention_call<T> call)
{
    constexpr int STEP = plain_row<D>::ELEMS;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = attention_tile(PLAIN_OWN);
    const int keys = call.causal && first + PLAIN_OWN < call.seq ? first + PLAIN_OWN : call.seq;
    float *own = block_shared<float>() + warp * PLAIN_ROWS * STEP,
          *other = block_shared<float>() + PLAIN_OWN * STEP;
    float *share = other + WARP * STEP + warp * PLAIN_ROWS * WARP;
    float largest[PLAIN_ROWS], sum[PLAIN_ROWS], out[PLAIN_ROWS][D] = {};

    UNROLL
    for (int r = 0; r < PLAIN_ROWS; r++) {
        largest[r] = -INFINITY;
        sum[r] = 0;
    }
    plain_load<D>(block_shared<float>(), call.q, call, first, PLAIN_OWN);
    for (int tile = 0; tile < keys; tile += WARP) {
        block_barrier();
        plain_load<D>(other, call.k, call, tile, WARP);
        block_barrier();
        UNROLL
        for (int r = 0; r < PLAIN_ROWS; r++) {
            const int query = first + warp * PLAIN_ROWS + r, key = tile + lane;
            /* For a query after the end of the sequence a score is computed too, but no thread reads it. */
            const bool sees = key < call.seq && (!call.causal || key <= query);
            const float score =
                sees ? call.scale * plain_dot<D>(own + r * STEP, other + lane * STEP) : -INFINITY;
            /* key 0 is seen by all */
            const float before = largest[r], now = larger(before, warp_largest(score));
            const float p = expf(score - now), shrink = expf(before - now);

            largest[r] = now;
            sum[r] = sum[r] * shrink + p;
            UNROLL
            for (int c = 0; c < D; c++)
                out[r][c] *= shrink;
            share[r * WARP + lane] =
                call.dropped.on ? p * drop_factor(call.dropped, attention_first(call) + query, key) : p;
        }
        block_barrier();
        plain_load<D>(other, call.v, call, tile, WARP);
        block_barrier();
        UNROLL
        for (int r = 0; r < PLAIN_ROWS; r++)
            plain_add_rows<D>(out[r], share + r * WARP, other);
    }
    UNROLL
    for (int r = 0; r < PLAIN_ROWS; r++) {
        const int query = first + warp * PLAIN_ROWS + r;
        const float total = warp_sum(sum[r]);

        plain_write<D>(call.to, call, query, out[r], 1.0f / total);
        if (lane == 0 && query < call.seq && call.lse_to != NULL)
            call.lse_to[attention_first(call) + query] = largest[r] + logf(total);
    }
}

template <class T> int launch_plain(struct CUstream_st *stream, const attention_call<T> &call, dim3 heads)
{
    return plain_by_width(call.head_dim, [&](auto row) {
        constexpr int D = plain_width(decltype(row)());
        const dim3 grid(blocks_of(static_cast<size_t>(call.seq), PLAIN_OWN), heads.y, heads.z);

        return LAUNCH((attention_plain_rows<D, T>), grid, PLAIN_THREADS, shared_floats<D>() * sizeof(float),
                      stream, call);
    });
}

} // namespace

int attention_plain(struct CUstream_st *stream, const attention_call<float> &call, dim3 heads)
{
    return launch_plain(stream, call, heads);
}

int attention_plain(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads)
{
    return launch_plain(stream, call, heads);
}
