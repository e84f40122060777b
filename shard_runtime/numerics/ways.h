/*
 * Decides which of two ways to compute the same result is faster, by the instruction set of the matrix
 * products. The answer is a table, made from the output of `make bench-ways`. Nothing is measured when a job
 * starts: the choice affects the bits of results, and a resumed run must give the same bits. Pure functions.
 */
#ifndef NUMERICS_WAYS_H
#define NUMERICS_WAYS_H

#include <stdbool.h>
#include <stddef.h>

/** Instruction sets in ascending order: each set includes the ones before it. */
enum ways_isa {
    WAYS_ISA_ANY, /* any CPU without the sets below, and every GPU */
    WAYS_ISA_AVX512_BF16,
    WAYS_ISA_AMX_BF16,
    WAYS_ISA_COUNT
};

/** The choices for one instruction set. */
struct ways {
    /* bfloat16 products are computed directly; otherwise operands are converted to float32 first */
    bool bf16_products;
    bool split_products; /* a float32 product is computed as three of bfloat16, if the job allows it */
    /* Attention that would need (seq, seq) matrices is computed without storing them from this seq on: */
    size_t fused_min_seq;             /* if the matrices would be multiplied in float32 */
    size_t fused_min_seq_bf16;        /* if they would be multiplied in bfloat16 */
    size_t fused_min_seq_bf16_causal; /* in bfloat16 with a causal mask */
};

/** Returns the row of `isa` in the table, which is constant. */
const struct ways *ways_of(enum ways_isa isa);

/**
 * Returns true if attention of `seq` positions is computed without storing its matrices. `bf16`: the matrices
 * would be multiplied in bfloat16.
 */
bool ways_attention_is_fused(enum ways_isa isa, size_t seq, bool bf16, bool causal);

#endif
