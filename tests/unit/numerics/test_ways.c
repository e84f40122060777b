/* Which way pays, on a CPU of each kind: the machine that runs this test plays no part. */
#include <criterion/criterion.h>

#include "shard_runtime/numerics/ways.h"

Test(ways, each_instruction_set_has_what_those_before_it_have)
{
    for (int isa = 1; isa < WAYS_ISA_COUNT; isa++) {
        const struct ways *less = ways_of((enum ways_isa)(isa - 1)), *more = ways_of((enum ways_isa)isa);

        cr_assert(more->bf16_products >= less->bf16_products && more->split_products >= less->split_products);
    }
    cr_assert_not(ways_of(WAYS_ISA_ANY)->bf16_products);
    cr_assert(ways_of(WAYS_ISA_AVX512_BF16)->bf16_products && !ways_of(WAYS_ISA_AVX512_BF16)->split_products);
    cr_assert(ways_of(WAYS_ISA_AMX_BF16)->split_products);
}

Test(ways, attention_stores_no_matrices_from_64_positions_on)
{
    for (int isa = 0; isa < WAYS_ISA_COUNT; isa++)
        for (int causal = 0; causal < 2; causal++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                if (isa == WAYS_ISA_AMX_BF16 && bf16 != 0)
                    continue;
                cr_expect_not(ways_attention_is_fused((enum ways_isa)isa, 63, bf16 != 0, causal != 0));
                cr_expect(ways_attention_is_fused((enum ways_isa)isa, 64, bf16 != 0, causal != 0));
                cr_expect(ways_attention_is_fused((enum ways_isa)isa, 1 << 20, bf16 != 0, causal != 0));
            }
}

/* Measured: without them it takes 3.5 to 4.6 times as long from 128 on, 1.4 times at 2048, causal 1.0 times there. */
Test(ways, with_amx_attention_of_bfloat16_stores_them_as_long_as_that_is_faster)
{
    for (size_t seq = 1; seq < 2048; seq++)
        for (int causal = 0; causal < 2; causal++)
            cr_assert_not(ways_attention_is_fused(WAYS_ISA_AMX_BF16, seq, true, causal != 0), "%zu", seq);
    cr_expect_not(ways_attention_is_fused(WAYS_ISA_AMX_BF16, 2048, true, false));
    cr_expect(ways_attention_is_fused(WAYS_ISA_AMX_BF16, 2048, true, true));
    cr_expect(ways_attention_is_fused(WAYS_ISA_AMX_BF16, 2049, true, false));
}
