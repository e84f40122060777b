/*
 * Waits, and modes that only change when things happen: of the same world no bit changes. And transports that are wrong:
 * the comparison sees each of them.
 */
#include <criterion/criterion.h>

#include "tests/unit/parity/case.h"

#define N(ways) (sizeof(ways) / sizeof *(ways))

static void expect_same(const char *name, const struct way *first, const struct way *ways, size_t n_ways)
{
    struct reference *reference = reference_read(name);
    static struct seen want, got;

    case_run(reference, first, &want);
    cr_expect_eq(seen_compare(&want, reference, "the first"), 0);
    for (size_t i = 0; i < n_ways; i++) {
        case_run(reference, &ways[i], &got);
        cr_expect(seen_same_bits(&got, &want), "%s: way %zu gives other bits", name, i);
        seen_free(&got);
    }
    seen_free(&want);
    reference_free(reference);
}

/* 100 ms at each of these places, on one rank after the other. */
Test(parity_delays, change_no_bit, .timeout = 300)
{
    static const struct way first = { .W = 2, .steps = 2 }, ways[] = {
        { .W = 2, .steps = 2, .slow = SLOW_GATHER, .overlap = FSDP_OVERLAP_ON },
        { .W = 2, .steps = 2, .slow = SLOW_REDUCE, .overlap = FSDP_OVERLAP_ON },
        { .W = 2, .steps = 2, .slow = SLOW_AFTER_FORWARD, .overlap = FSDP_OVERLAP_ON },
        { .W = 2, .steps = 2, .slow = SLOW_BEFORE_OPTIMIZER, .overlap = FSDP_OVERLAP_ON },
        { .W = 2, .steps = 2, .slow = SLOW_ALL, .overlap = FSDP_OVERLAP_ON },
        { .W = 2, .steps = 2, .slow = SLOW_ALL },
    };

    expect_same("transformer", &first, ways, N(ways));
}

Test(parity_delays, nor_do_they_with_parameters_gathered_further_ahead, .timeout = 300)
{
    static const struct way first = { .W = 2, .steps = 2 }, ways[] = {
        { .W = 2, .steps = 2, .slow = SLOW_ALL, .overlap = FSDP_OVERLAP_ON, .prefetch = 2, .in_flight = 2 },
    };

    expect_same("twice", &first, ways, N(ways));
}

Test(parity_modes, of_resharding_and_prefetching_change_no_bit, .timeout = 300)
{
    static const struct way first = { .W = 4 }, ways[] = {
        { .W = 4, .reshard = FSDP_RESHARD_TRUE },
        { .W = 4, .reshard = FSDP_RESHARD_FALSE },
        { .W = 4, .reshard_size = 2 },
        { .W = 4, .reshard_size = 4 },
        { .W = 4, .keep_after_backward = true },
        { .W = 4, .prefetch = 1 },
        { .W = 4, .prefetch = 2 },
        { .W = 4, .prefetch = 2, .reshard_size = 2 },
        { .W = 4, .in_flight = 3 },
        { .W = 4, .own_reduce_group = true, .overlap = FSDP_OVERLAP_ON },
        { .W = 4, .overlap = FSDP_OVERLAP_ON },
        { .W = 4, .recompute = FSDP_CHECKPOINT_FULL },
        { .W = 4, .recompute = FSDP_CHECKPOINT_SELECTIVE, .prefetch = 2 },
    };

    expect_same("transformer", &first, ways, N(ways));
}

/* Two forwards before a backward: their own order of sums, and the same bits whatever is gathered when. */
Test(parity_modes, of_two_forwards_change_no_bit, .timeout = 300)
{
    static const struct way first = { .W = 2, .n_micro = 2, .forwards = 2 }, ways[] = {
        { .W = 2, .n_micro = 2, .forwards = 2, .reshard = FSDP_RESHARD_TRUE },
        { .W = 2, .n_micro = 2, .forwards = 2, .reshard = FSDP_RESHARD_FALSE },
        { .W = 2, .n_micro = 2, .forwards = 2, .prefetch = 2 },
        { .W = 2, .n_micro = 2, .forwards = 2, .overlap = FSDP_OVERLAP_ON },
        { .W = 2, .n_micro = 2, .forwards = 2, .recompute = FSDP_CHECKPOINT_FULL },
        { .W = 2, .n_micro = 2, .forwards = 2, .recompute = FSDP_CHECKPOINT_SELECTIVE },
    };

    expect_same("transformer", &first, ways, N(ways));
}

/* A backward of each of two forwards gives the bits of two micro-steps, whose forwards come one by one. */
Test(parity_modes, of_forwards_run_ahead_change_no_bit, .timeout = 300)
{
    static const struct way every = { .W = 2, .n_micro = 2, .sync = FSDP_SYNC_EVERY },
                            last = { .W = 2, .n_micro = 2, .sync = FSDP_SYNC_LAST },
                            of_every[] = { { .W = 2,
                                             .n_micro = 2,
                                             .forwards = 2,
                                             .backwards = FSDP_BACKWARD_OF_EACH,
                                             .sync = FSDP_SYNC_EVERY },
                                           { .W = 2,
                                             .n_micro = 2,
                                             .forwards = 2,
                                             .backwards = FSDP_BACKWARD_OF_EACH,
                                             .sync = FSDP_SYNC_EVERY,
                                             .reshard = FSDP_RESHARD_FALSE,
                                             .overlap = FSDP_OVERLAP_ON } },
                            of_last[] = { { .W = 2,
                                            .n_micro = 2,
                                            .forwards = 2,
                                            .backwards = FSDP_BACKWARD_OF_EACH,
                                            .sync = FSDP_SYNC_LAST },
                                          { .W = 2,
                                            .n_micro = 2,
                                            .forwards = 2,
                                            .backwards = FSDP_BACKWARD_OF_EACH,
                                            .sync = FSDP_SYNC_LAST,
                                            .reshard = FSDP_RESHARD_FALSE,
                                            .keep_after_backward = true } };

    expect_same("transformer", &every, of_every, N(of_every));
    expect_same("transformer", &last, of_last, N(of_last));
}

Test(parity_modes, of_resharding_change_no_bit_with_bfloat16, .timeout = 300)
{
    struct reference *reference = reference_read("transformer");
    static const struct way ways[] = {
        { .W = 4, .param_dtype = FSDP_BF16 },
        { .W = 4, .param_dtype = FSDP_BF16, .reshard = FSDP_RESHARD_TRUE },
        { .W = 4, .param_dtype = FSDP_BF16, .reshard_size = 2 },
        { .W = 4, .param_dtype = FSDP_BF16, .reshard = FSDP_RESHARD_FALSE, .overlap = FSDP_OVERLAP_ON },
        { .W = 4, .param_dtype = FSDP_BF16, .recompute = FSDP_CHECKPOINT_FULL },
    };
    static struct seen want, got;

    case_run(reference, &ways[0], &want);
    for (size_t i = 1; i < N(ways); i++) {
        case_run(reference, &ways[i], &got);
        cr_expect(seen_same_bits(&got, &want), "way %zu gives other bits", i);
        seen_free(&got);
    }
    seen_free(&want);
    reference_free(reference);
}

/* --- mutants --------------------------------------------------------------------------------------------- */

Test(parity_mutants, each_is_seen, .timeout = 300)
{
    static const struct way ways[] = {
        { .W = 2, .steps = 2, .sabotage = SUMS_FOR_MEANS },
        { .W = 2, .steps = 2, .sabotage = LOSES_A_ROW },
        { .W = 2, .steps = 2, .sabotage = REDUCES_TOO_LITTLE },
        { .W = 2, .steps = 2, .sabotage = MISSES_A_WAIT, .overlap = FSDP_OVERLAP_ON, .slow = SLOW_GATHER },
        { .W = 2, .steps = 2, .n_micro = 2, .forwards = 2, .sabotage = MIXES_BATCHES },
        { .W = 2, .steps = 2, .n_micro = 2, .forwards = 2, .sabotage = SHARES_ACTIVATIONS },
        { .W = 2,
          .steps = 2,
          .n_micro = 2,
          .forwards = 2,
          .backwards = FSDP_BACKWARD_OF_EACH,
          .sabotage = SHARES_ACTIVATIONS },
    };
    struct reference *reference = reference_read("transformer");
    static struct seen seen;

    for (size_t i = 0; i < N(ways); i++) {
        case_run(reference, &ways[i], &seen);
        cr_expect_gt(seen_compare(&seen, reference, NULL), 0, "mutant %zu passes", i);
        seen_free(&seen);
    }
    reference_free(reference);
}
