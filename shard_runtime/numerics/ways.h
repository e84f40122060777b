/*
 * Which of two ways to compute the same takes less time, by the instruction set that products use. It is a table, made from
 * what `make bench-ways` prints, and nothing is timed when a job starts: the choice decides bits, and a run that goes on
 * must have the same ones. Pure.
 */
#ifndef NUMERICS_WAYS_H
#define NUMERICS_WAYS_H

#include <stdbool.h>
#include <stddef.h>

/** In rising order: each has what those before it have. */
enum ways_isa {
    WAYS_ISA_ANY, /* what is not in this list, and every GPU */
    WAYS_ISA_AVX512_BF16,
    WAYS_ISA_AMX_BF16,
    WAYS_ISA_COUNT
};

struct ways {
    bool bf16_products;  /* products of bfloat16 as they are; else by products of float32, on copies */
    bool split_products; /* one product of float32 as three of bfloat16, where the job allows it */
    /* Attention: from so many positions on its (seq, seq) matrices are not stored. */
    size_t fused_min_seq;             /* whose stored matrices would be multiplied in float32 */
    size_t fused_min_seq_bf16;        /* in bfloat16 */
    size_t fused_min_seq_bf16_causal; /* in bfloat16, and a query sees no key after it */
};

/** The row of `isa`; constant. */
const struct ways *ways_of(enum ways_isa isa);

/** Is attention of `seq` positions computed without its matrices? `bf16`: they would be multiplied in bfloat16. */
bool ways_attention_is_fused(enum ways_isa isa, size_t seq, bool bf16, bool causal);

#endif
