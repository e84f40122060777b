/*
 * What plans for a GPU say of memory, without one: the kernels' own numbers, over sizes that fall on both sides of every cut.
 */
#include <criterion/criterion.h>

#include "shard_runtime/cuda/kernels/kernels.h"
#include "shard_runtime/numerics/cuda_plan.h"
#include "tests/emulation/cases.h"

TestSuite(emulated_plan, .fini = cases_end);

static const size_t sizes[] = { 0,    1,     3,     4,     5,     127,   128,    129,  255,
                                256,  257,   511,   1023,  1024,  1025,  3071,   3072, 3073,
                                4096, 12288, 16383, 16384, 16385, 50257, 1048577 };
enum { N_SIZES = sizeof sizes / sizeof *sizes };

Test(emulated_plan, scratch_is_the_kernels)
{
    for (int r = 0; r < N_SIZES; r++) {
        const size_t rows = sizes[r];
        const struct kernel_span span = { .n_elems = rows, .dtype = FSDP_F32 };

        cr_expect_eq(cuda_plan_cross_entropy_bytes(rows), kernel_cross_entropy_scratch(rows));
        cr_expect_eq(cuda_plan_sum_powers_bytes(rows), kernel_sum_powers_scratch(&span, 1));
        for (int c = 0; c < N_SIZES; c++) {
            const struct fused_attention_desc attention = {
                .shape = { .batch = 2, .heads = rows % 64 + 1, .seq = sizes[c], .head_dim = 64 }
            };

            cr_expect_eq(cuda_plan_column_sum_bytes(rows, sizes[c]),
                         kernel_column_sum_scratch(rows, sizes[c]), "%zu x %zu", rows, sizes[c]);
            cr_expect_eq(cuda_plan_embedding_backward_bytes(rows, sizes[c]),
                         kernel_embedding_backward_scratch(rows, sizes[c]), "%zu x %zu", rows, sizes[c]);
            cr_expect_eq(cuda_plan_norm_backward_bytes(rows, sizes[c]),
                         kernel_norm_backward_scratch(rows, sizes[c]), "%zu x %zu", rows, sizes[c]);
            cr_expect_eq(cuda_plan_attention_backward_bytes(&attention),
                         kernel_attention_backward_scratch(&attention));
        }
    }
}
