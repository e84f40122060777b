#include "shard_runtime/numerics/ways.h"

/*
 * docs/benchmarks.md contains the measurements.
 *
 * Products of bfloat16, compared with float32:
 *   - with AVX512-BF16 twice as fast
 *   - with AMX eight times as fast, so three of them take less time than one of float32
 *   - with only AVX-512 a third as fast; with less, oneDNN does not compute them at all
 *
 * Attention, time without storing the matrices divided by the time with them:
 *   - without AMX: up to 1.49 for at most 32 positions; 0.86 to 1.14 from 64 on; causal 0.7 from 512 on
 *   - with AMX in float32: 0.58 to 0.98 from 128 on
 *   - with AMX in bfloat16: 3.5 to 4.6 from 128 on; 1.4 at 2048; causal 1.0 at 2048
 *
 * More than 2048 positions were not measured with AMX in bfloat16. For them the matrices are not stored,
 * because their size grows with the square of the positions.
 */
static const struct ways table[WAYS_ISA_COUNT] = {
    [WAYS_ISA_ANY] = { false, false, 64, 64, 64 },
    [WAYS_ISA_AVX512_BF16] = { true, false, 64, 64, 64 },
    [WAYS_ISA_AMX_BF16] = { true, true, 64, 2049, 2048 },
};

const struct ways *ways_of(enum ways_isa isa)
{
    return &table[isa];
}

bool ways_attention_is_fused(enum ways_isa isa, size_t seq, bool bf16, bool causal)
{
    const struct ways *ways = ways_of(isa);

    return seq >= (!bf16    ? ways->fused_min_seq
                   : causal ? ways->fused_min_seq_bf16_causal
                            : ways->fused_min_seq_bf16);
}
