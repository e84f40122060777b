#include "shard_runtime/numerics/ways.h"

/*
 * docs/benchmarks.md has the measurements. bfloat16 products: with AVX512-BF16 twice the speed of float32, with AMX eight
 * times, so that three of them take less time than one of float32. With AVX-512 alone oneDNN computes them at a third of
 * float32's speed, and below that not at all.
 *
 * Attention, time without the matrices over time with them. Without AMX: up to 1.49 to 32 positions, 0.86 to 1.14 from 64
 * on, causal 0.7 from 512 on. With AMX in float32: 0.58 to 0.98 from 128 on. With AMX in bfloat16: 3.5 to 4.6 from 128 on, 1.4
 * at 2048, causal 1.0 at 2048. Longer ones were not measured there: what would be stored grows with the square of the
 * positions, so that they are computed without.
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
