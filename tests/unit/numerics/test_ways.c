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
