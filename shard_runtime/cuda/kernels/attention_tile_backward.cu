/*
 * Attention backward in bfloat16 on mma. Two passes of one shape, as in attention_plain_backward.cu. In one a
 * block owns 64 queries and writes dq; in the other it owns 64 keys and writes dk and dv. The other rows go
 * by 32 at a time. Two tiles of them are in shared memory: one is being copied while the other is worked on.
 * With (a1, a2) the own rows' q and dout (or k and v) and (b1, b2) the others' k and v (or q and dout),
 *   s = scale a1 b1^T   P = exp(s - lse)   dP = dropout'(a2 b2^T)   dS = P (dP - delta)
 *   dq or dk = scale dS b1     dv = dropout(P) b2
 */
#include <math.h>

#include "shard_runtime/cuda/kernels/attention_tile.h"

namespace
{

enum { OTHERS = 32 };

/* Own rows twice, then two stages of the others' rows twice, then two stages of the others' lse and delta. */
template <int D> constexpr size_t shared_bytes()
{
    return static_cast<size_t>(2 * TILE_OWN + 4 * OTHERS) * tile_row<D>::STRIDE * sizeof(bf16) +
           4 * OTHERS * sizeof(float);
}

/*
 * Begins to copy lse and delta of queries first .. first + OTHERS - 1, with zeros beyond seq. The whole block
 * does it.
 */
__device__ __forceinline__ void copy_numbers(float *lse, const attention_call<bf16> &call, int first)
{
    const int thread = static_cast<int>(threadIdx.x), query = first + thread % OTHERS;
    const bool valid = query < call.seq;
    const size_t from = attention_first(call) + static_cast<size_t>(valid ? query : 0);

    if (thread < 2 * OTHERS)
        tile_copy_float(lse + thread, (thread < OTHERS ? call.lse : call.delta) + from, valid);
}

/*
 * Turns s and dp (16 x OTHERS) into dropout(P) and dS. If the block owns queries, lse and delta are those of
 * the lane's two rows; otherwise those of the OTHERS queries. WHOLE: every query of the tile sees every key.
 */
template <bool OWNS_QUERIES, bool DROPS, bool WHOLE>
__device__ __forceinline__ void score_gradient(const attention_call<bf16> &call, tile_c s[OTHERS / 8],
                                               tile_c dp[OTHERS / 8], int own, int tile, const float *lse,
                                               const float *delta)
{
    const size_t first_row = attention_first(call);
    const float to_log2 = call.scale * LOG2_E;

    UNROLL
    for (int n = 0; n < OTHERS / 8; n++)
        UNROLL
    for (int i = 0; i < 4; i++) {
        const int row = own + tile_row_of(i), column = tile + n * 8 + tile_column_of(i);
        const int query = OWNS_QUERIES ? row : column, key = OWNS_QUERIES ? column : row;
        const int number = OWNS_QUERIES ? i / 2 : n * 8 + tile_column_of(i);
        /* No work is put into a branch: a warp is faster if it also computes what it does not need. */
        const bool sees = WHOLE || attention_sees(call, query, key);
        const float p = quick_exp2(sees ? s[n].at[i] * to_log2 - lse[number] * LOG2_E : -INFINITY);
        const float factor = DROPS ? drop_factor(call.dropped, first_row + query, key) : 1.0f;

        dp[n].at[i] = sees ? p * (dp[n].at[i] * factor - delta[number]) : 0.0f;
        s[n].at[i] = p * factor;
    }
}

template <bool OWNS_QUERIES, int D, bool DROPS>
__global__ void __launch_bounds__(TILE_THREADS, D == 64 && !DROPS ? 3 : 2)
    attention_tile_gradient(attention_call<bf16> call)
{
    constexpr int STRIDE = tile_row<D>::STRIDE, STAGE = 2 * OTHERS * STRIDE;
    const int warp_row = static_cast<int>(threadIdx.x) / WARP * 16, first = attention_tile(TILE_OWN);
    const int begin = call.causal && !OWNS_QUERIES ? first : 0;
    const int end = call.causal && OWNS_QUERIES && first + TILE_OWN < call.seq ? first + TILE_OWN : call.seq;
    const attention_rows<const bf16> &rows1 = OWNS_QUERIES ? call.k : call.q;
    const attention_rows<const bf16> &rows2 = OWNS_QUERIES ? call.v : call.dout;
    bf16 *own1 = block_shared<bf16>(), *own2 = own1 + TILE_OWN * STRIDE, *stages = own2 + TILE_OWN * STRIDE;
    const bf16 *warp1 = own1 + warp_row * STRIDE, *warp2 = own2 + warp_row * STRIDE;
    float *numbers = reinterpret_cast<float *>(stages + 2 * STAGE), own_lse[2] = {}, own_delta[2] = {};
    constexpr bool HELD = D == 64; /* the warp's rows stay in registers, if there are enough registers */
    tile_a held1[HELD ? D / 16 : 1], held2[HELD ? D / 16 : 1];
    tile_c sum1[D / 8] = {}, sum2[OWNS_QUERIES ? 1 : D / 8] = {};
    const float scaled[2] = { call.scale, call.scale }, unscaled[2] = { 1, 1 };

    tile_copy_rows<D, TILE_OWN>(own1, OWNS_QUERIES ? call.q : call.k, call, first);
    tile_copy_rows<D, TILE_OWN>(own2, OWNS_QUERIES ? call.dout : call.v, call, first);
    tile_copy_rows<D, OTHERS>(stages, rows1, call, begin);
    tile_copy_rows<D, OTHERS>(stages + OTHERS * STRIDE, rows2, call, begin);
    if constexpr (!OWNS_QUERIES)
        copy_numbers(numbers, call, begin);
    tile_copies_close();
    UNROLL
    for (int half = 0; half < 2; half++) {
        const int query = first + warp_row + tile_row_of(half * 2);

        if (OWNS_QUERIES && query < call.seq) {
            own_lse[half] = call.lse[attention_first(call) + query];
            own_delta[half] = call.delta[attention_first(call) + query];
        }
    }
    for (int tile = begin; tile < end; tile += OTHERS) {
        const int stage = (tile - begin) / OTHERS % 2;
        const bf16 *other1 = stages + stage * STAGE, *other2 = other1 + OTHERS * STRIDE;
        bf16 *next = stages + (1 - stage) * STAGE;
        const float *lse = numbers + stage * 2 * OTHERS;
        /*
         * True if this warp needs nothing of the tile, because its own rows are on one side of all rows of
         * the tile.
         */
        const bool masked =
            call.causal && (OWNS_QUERIES ? tile > first + warp_row + 15 : tile + OTHERS <= first + warp_row);
        const bool whole = tile + OTHERS <= call.seq && first + warp_row + 16 <= call.seq &&
                           (!call.causal || (OWNS_QUERIES ? tile + OTHERS <= first + warp_row + 1
                                                          : tile >= first + warp_row + 15));
        tile_c s[OTHERS / 8] = {}, dp[OTHERS / 8] = {};

        if (tile + OTHERS < end) {
            tile_copy_rows<D, OTHERS>(next, rows1, call, tile + OTHERS);
            tile_copy_rows<D, OTHERS>(next + OTHERS * STRIDE, rows2, call, tile + OTHERS);
            if constexpr (!OWNS_QUERIES)
                copy_numbers(numbers + (1 - stage) * 2 * OTHERS, call, tile + OTHERS);
        }
        tile_copies_close(); /* of nothing, after the last tile */
        tile_copies_wait<1>();
        block_barrier();
        if (HELD && tile == begin) {
            UNROLL
            for (int e = 0; e < (HELD ? D / 16 : 1); e++) {
                held1[e] = tile_load_a(warp1 + e * 16, STRIDE);
                held2[e] = tile_load_a(warp2 + e * 16, STRIDE);
            }
        }
        if (!masked) {
            const float *row_lse = OWNS_QUERIES ? own_lse : lse;
            const float *row_delta = OWNS_QUERIES ? own_delta : lse + OTHERS;

            tile_add_scores<D, OTHERS>(
                s, [&](int e) { return HELD ? held1[HELD ? e : 0] : tile_load_a(warp1 + e * 16, STRIDE); },
                other1);
            tile_add_scores<D, OTHERS>(
                dp, [&](int e) { return HELD ? held2[HELD ? e : 0] : tile_load_a(warp2 + e * 16, STRIDE); },
                other2);
            if (whole)
                score_gradient<OWNS_QUERIES, DROPS, true>(call, s, dp, first + warp_row, tile, row_lse,
                                                          row_delta);
            else
                score_gradient<OWNS_QUERIES, DROPS, false>(call, s, dp, first + warp_row, tile, row_lse,
                                                           row_delta);
            if constexpr (!OWNS_QUERIES)
                tile_add_rows<D, OTHERS>(sum2, s, other2);
            tile_add_rows<D, OTHERS>(sum1, dp, other1);
        }
        block_barrier(); /* no thread reads this stage any more */
    }
    if (OWNS_QUERIES) {
        tile_write<D>(call.dq, call, first + warp_row, sum1, scaled);
        return;
    }
    if (call.dk.data != NULL)
        tile_write<D>(call.dk, call, first + warp_row, sum1, scaled);
    if constexpr (!OWNS_QUERIES)
        if (call.dv.data != NULL)
            tile_write<D>(call.dv, call, first + warp_row, sum2, unscaled);
}

template <int D, bool DROPS>
int launch_tiles(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads)
{
    const dim3 grid(blocks_of(static_cast<size_t>(call.seq), TILE_OWN), heads.y, heads.z);
    int status = KERNEL_OK;

    if (call.dk.data != NULL || call.dv.data != NULL)
        status = LAUNCH((attention_tile_gradient<false, D, DROPS>), grid, TILE_THREADS, shared_bytes<D>(),
                        stream, call);
    if (status == KERNEL_OK && call.dq.data != NULL)
        status = LAUNCH((attention_tile_gradient<true, D, DROPS>), grid, TILE_THREADS, shared_bytes<D>(),
                        stream, call);
    return status;
}

} // namespace

int attention_tiles_backward(struct CUstream_st *stream, const attention_call<bf16> &call, dim3 heads)
{
    if (call.head_dim == 64)
        return call.dropped.on ? launch_tiles<64, true>(stream, call, heads)
                               : launch_tiles<64, false>(stream, call, heads);
    return call.dropped.on ? launch_tiles<128, true>(stream, call, heads)
                           : launch_tiles<128, false>(stream, call, heads);
}
