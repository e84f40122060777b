/*
 * Attention forward in bfloat16 on mma: Dao, "FlashAttention-2", ICLR 2024. A block owns 64 queries, a warp
 * 16 of them, whose q stays in registers; keys go by 64 at a time. While a warp scores keys, their values are
 * on their way, and while it adds values up, the next keys are. The scores' registers become the left factor
 * of the second product.
 */
#include <math.h>

#include "shard_runtime/cuda/kernels/attention_tile.h"

namespace
{

enum { KEYS = 64 };

template <int D> constexpr size_t shared_bytes()
{
    return static_cast<size_t>(TILE_OWN + 2 * KEYS) * tile_row<D>::STRIDE * sizeof(bf16);
}

struct running {
    /* for each of the two rows on which the lane works; `sum` is over the lane's own columns only */
    float largest[2], sum[2];
};

/*
 * Turns scores (16 x KEYS) into probabilities, relative to the largest score so far. *shrink is the factor
 * that this means for earlier sums. WHOLE: every query of the tile sees every key.
 */
template <bool DROPS, bool WHOLE>
__device__ __forceinline__ void probabilities(const attention_call<bf16> &call, tile_c score[KEYS / 8],
                                              running &seen, float shrink[2], int first_query, int first_key)
{
    const float to_log2 = call.scale * LOG2_E;

    UNROLL
    for (int half = 0; half < 2; half++) {
        const int query = first_query + tile_row_of(half * 2);
        float largest = seen.largest[half], sum = 0;

        UNROLL
        for (int n = 0; n < KEYS / 8; n++)
            UNROLL
        for (int i = half * 2; i < half * 2 + 2; i++) {
            const int key = first_key + n * 8 + tile_column_of(i);
            const bool sees = WHOLE || (key < call.seq && (!call.causal || key <= query));

            score[n].at[i] = sees ? score[n].at[i] * to_log2 : -INFINITY;
            largest = fmaxf(largest, score[n].at[i]);
        }
        largest = fmaxf(largest, warp_xor(largest, 1)); /* four lanes have the row */
        largest = fmaxf(largest, warp_xor(largest, 2));
        shrink[half] = quick_exp2(seen.largest[half] - largest); /* key 0 was seen: largest is finite */
        UNROLL
        for (int n = 0; n < KEYS / 8; n++)
            UNROLL
        for (int i = half * 2; i < half * 2 + 2; i++) {
            score[n].at[i] = quick_exp2(score[n].at[i] - largest);
            sum += score[n].at[i];
            if (DROPS)
                score[n].at[i] *= drop_factor(call.dropped, attention_first(call) + query,
                                              first_key + n * 8 + tile_column_of(i));
        }
        seen.sum[half] = seen.sum[half] * shrink[half] + sum;
        seen.largest[half] = largest;
    }
}

template <int D, bool DROPS>
__global__ void __launch_bounds__(TILE_THREADS) attention_tile_rows(attention_call<bf16> call)
{
    constexpr int STRIDE = tile_row<D>::STRIDE;
    const int first = attention_tile(TILE_OWN), own = first + static_cast<int>(threadIdx.x) / WARP * 16;
    const int keys = call.causal && first + TILE_OWN < call.seq ? first + TILE_OWN : call.seq;
    bf16 *q = block_shared<bf16>(), *k = q + TILE_OWN * STRIDE, *v = k + KEYS * STRIDE;
    running seen = { { -INFINITY, -INFINITY }, { 0, 0 } };
    tile_a query[D / 16];
    tile_c out[D / 8] = {};
    float factor[2];

    tile_copy_rows<D, TILE_OWN>(q, call.q, call, first);
    tile_copy_rows<D, KEYS>(k, call.k, call, 0);
    tile_copies_close();
    tile_copies_wait<0>();
    block_barrier();
    UNROLL
    for (int e = 0; e < D / 16; e++)
        query[e] = tile_load_a(q + (own - first) * STRIDE + e * 16, STRIDE);
    for (int tile = 0; tile < keys; tile += KEYS) {
        tile_c score[KEYS / 8] = {};
        float shrink[2];

        tile_copy_rows<D, KEYS>(v, call.v, call, tile);
        tile_copies_close();
        tile_add_scores<D, KEYS>(
            score, [&](int e) { return query[e]; }, k);
        block_barrier(); /* no thread reads these keys any more */
        if (tile + KEYS < keys)
            tile_copy_rows<D, KEYS>(k, call.k, call, tile + KEYS);
        tile_copies_close(); /* of nothing, after the last keys */
        if (tile + KEYS <= (call.causal ? own + 1 : call.seq))
            probabilities<DROPS, true>(call, score, seen, shrink, own, tile);
        else
            probabilities<DROPS, false>(call, score, seen, shrink, own, tile);
        UNROLL
        for (int n = 0; n < D / 8; n++)
            UNROLL
        for (int i = 0; i < 4; i++)
            out[n].at[i] *= shrink[i / 2];
        tile_copies_wait<1>(); /* the values */
        block_barrier();
        tile_add_rows<D, KEYS>(out, score, v);
        tile_copies_wait<0>(); /* the next keys */
        block_barrier();
    }
    UNROLL
    for (int half = 0; half < 2; half++) {
        const int t = own + tile_row_of(half * 2);
        float total = seen.sum[half];

        total += warp_xor(total, 1);
        total += warp_xor(total, 2);
        factor[half] = 1.0f / total;
        if (tile_column_of(0) == 0 && t < call.seq && call.lse_to != NULL)
            call.lse_to[attention_first(call) + t] = seen.largest[half] * LN_2 + logf(total);
    }
    tile_write<D>(call.to, call, own, out, factor);
}

template <int D> int launch_tiles(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads)
{
    const dim3 grid(blocks_of(static_cast<size_t>(call.seq), TILE_OWN), heads.y, heads.z);

    if (call.dropped.on)
        return LAUNCH((attention_tile_rows<D, true>), grid, TILE_THREADS, shared_bytes<D>(), stream, call);
    return LAUNCH((attention_tile_rows<D, false>), grid, TILE_THREADS, shared_bytes<D>(), stream, call);
}

} // namespace

int attention_tiles(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads)
{
    return call.head_dim == 64 ? launch_tiles<64>(stream, call, heads)
                               : launch_tiles<128>(stream, call, heads);
}
