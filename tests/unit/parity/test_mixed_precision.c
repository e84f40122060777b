/*
 * test_fully_shard_mixed_precision.py: bfloat16 parameters with either dtype of the reduction. No tensor is farther from
 * fp64 than 1.25 times PyTorch's own error plus 1e-3 of its norm, no loss farther than 1e-3.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/unit/parity/case.h"

static void expect_near(const struct reference *r, const struct seen *seen, const struct way *way,
                        const char *reduce)
{
    const double allowed = 1e-3;

    for (int step = 0; step < seen->n_steps; step++)
        cr_expect(fabs(seen->losses[step] / r->losses[step] - 1) <= allowed,
                  "W %d, %s, step %d: loss %g, not %g", way->W, reduce, step, seen->losses[step],
                  r->losses[step]);
    for (size_t i = 0; i < seen->n_parameters; i++) {
        const char *name = seen->parameters[i].name;
        const struct reference_tensor *want = reference_gradient(r, name);
        const double theirs = reference_error_of(r, reduce, name);
        const double ours = distance(seen->parameters[i].gradient, want->values, want->n_elems);

        cr_expect(theirs > 0 && ours <= 1.25 * theirs + 1e-3, "W %d, %s, %s: %g off, PyTorch %g", way->W,
                  reduce, name, ours, theirs);
    }
}

Test(parity_mixed_precision, no_farther_from_fp64_than_pytorch, .timeout = 300)
{
    static const char *const cases[] = { "linears-a", "transformer" };
    static const int worlds[] = { 1, 2, 3, 4 };
    static struct seen seen;

    for (size_t c = 0; c < 2; c++) {
        struct reference *reference = reference_read(cases[c]);

        for (size_t w = 0; w < 4; w++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                const struct way way = { .W = worlds[w],
                                         .param_dtype = FSDP_BF16,
                                         .reduce_dtype = bf16 ? FSDP_BF16 : FSDP_F32 };

                case_run(reference, &way, &seen);
                expect_near(reference, &seen, &way, bf16 ? "bfloat16" : "float32");
                seen_free(&seen);
            }
        reference_free(reference);
    }
}

/* With float32 reductions, micro-steps add up in float32: no worse than one. */
Test(parity_mixed_precision, micro_steps_add_up_in_float32, .timeout = 300)
{
    struct reference *reference = reference_read("transformer");
    static struct seen seen;

    for (int every = 0; every < 2; every++) {
        const struct way way = { .W = 2,
                                 .n_micro = 3,
                                 .sync = every ? FSDP_SYNC_EVERY : FSDP_SYNC_LAST,
                                 .param_dtype = FSDP_BF16,
                                 .reduce_dtype = FSDP_F32 };

        case_run(reference, &way, &seen);
        expect_near(reference, &seen, &way, "float32");
        seen_free(&seen);
    }
    reference_free(reference);
}
