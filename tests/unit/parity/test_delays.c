/*
 * Waits, and modes that only change when things happen: of the same world no bit changes. And transports that
 * are wrong: the comparison sees each of them.
 */
#include <criterion/criterion.h>

#include "tests/unit/parity/case.h"

/* The first way is held against the reference where it is float32; each other has its bits. */
static void expect_same(const char *name, const struct way *ways, size_t n_ways)
{
    struct reference *reference = reference_read(name);
    static struct seen want, got;

    case_run(reference, &ways[0], &want);
    if (ways[0].param_dtype == 0)
        cr_expect_eq(seen_compare(&want, reference, "the first"), 0);
    for (size_t i = 1; i < n_ways; i++) {
        case_run(reference, &ways[i], &got);
        cr_expect(seen_same_bits(&got, &want), "%s: way %zu gives other bits", name, i);
        seen_free(&got);
    }
    seen_free(&want);
    reference_free(reference);
}

#define SameTest(...) TEST_OF_WAYS(expect_same, __VA_ARGS__)

/* 100 ms on one rank after the other, at each of these places and at all. */
#define SLOW_AT(place, ...)                                                                                  \
    {                                                                                                        \
        __VA_ARGS__, .steps = 2, .overlap = FSDP_OVERLAP_ON, .slow = place                                   \
    }
#define SLOW_AT_EACH(...)                                                                                    \
    WAY(__VA_ARGS__, .steps = 2), SLOW_AT(SLOW_GATHER, __VA_ARGS__), SLOW_AT(SLOW_REDUCE, __VA_ARGS__),      \
        SLOW_AT(SLOW_AFTER_FORWARD, __VA_ARGS__), SLOW_AT(SLOW_BEFORE_OPTIMIZER, __VA_ARGS__),               \
        SLOW_AT(SLOW_ALL, __VA_ARGS__), WAY(__VA_ARGS__, .steps = 2, .slow = SLOW_ALL)

SameTest(parity_delays, change_no_bit, "transformer", SLOW_AT_EACH(.W = 2));
SameTest(parity_delays, nor_do_they_of_four_ranks, "transformer", SLOW_AT_EACH(.W = 4));
SameTest(parity_delays, nor_of_two_copies_of_two_shards, "transformer", SLOW_AT_EACH(.W = 4, .replicate = 2));

/* Each mode slow everywhere has the bits of the default where nothing waits. */
#define SLOW .W = 4, .steps = 1, .slow = SLOW_ALL, .overlap = FSDP_OVERLAP_ON
SameTest(parity_delays, nor_do_they_in_any_mode_of_resharding_and_prefetching, "transformer",
         { .W = 4, .steps = 1 }, { SLOW, .reshard = FSDP_RESHARD_TRUE },
         { SLOW, .reshard = FSDP_RESHARD_FALSE }, { SLOW, .reshard_size = 2 },
         { SLOW, .keep_after_backward = true }, { SLOW, .prefetch = 1 },
         { SLOW, .prefetch = 2, .in_flight = 2 }, { SLOW, .own_reduce_group = true });
SameTest(parity_delays, nor_over_two_copies, "transformer", { .W = 4, .replicate = 2, .steps = 1 },
         { SLOW, .replicate = 2, .reshard = FSDP_RESHARD_TRUE },
         { SLOW, .replicate = 2, .reshard = FSDP_RESHARD_FALSE },
         { SLOW, .replicate = 2, .prefetch = 2, .in_flight = 2 });
SameTest(parity_delays, nor_do_they_with_parameters_gathered_further_ahead, "twice", { .W = 2, .steps = 2 },
         SLOW_AT(SLOW_ALL, .W = 2, .prefetch = 2, .in_flight = 2));

SameTest(parity_modes, of_resharding_and_prefetching_change_no_bit, "transformer", { .W = 4 },
         { .W = 4, .reshard = FSDP_RESHARD_TRUE }, { .W = 4, .reshard = FSDP_RESHARD_FALSE },
         { .W = 4, .reshard_size = 2 }, { .W = 4, .reshard_size = 4 },
         { .W = 4, .keep_after_backward = true }, { .W = 4, .prefetch = 1 }, { .W = 4, .prefetch = 2 },
         { .W = 4, .prefetch = 2, .reshard_size = 2 }, { .W = 4, .in_flight = 3 },
         { .W = 4, .own_reduce_group = true, .overlap = FSDP_OVERLAP_ON },
         { .W = 4, .overlap = FSDP_OVERLAP_ON }, { .W = 4, .recompute = FSDP_CHECKPOINT_FULL },
         { .W = 4, .recompute = FSDP_CHECKPOINT_SELECTIVE, .prefetch = 2 });

/* Two forwards before a backward have their own order of sums. */
SameTest(parity_modes, of_two_forwards_change_no_bit, "transformer", { TWO_FORWARDS },
         { TWO_FORWARDS, .reshard = FSDP_RESHARD_TRUE }, { TWO_FORWARDS, .reshard = FSDP_RESHARD_FALSE },
         { TWO_FORWARDS, .prefetch = 2 }, { TWO_FORWARDS, .overlap = FSDP_OVERLAP_ON },
         { TWO_FORWARDS, .recompute = FSDP_CHECKPOINT_FULL },
         { TWO_FORWARDS, .recompute = FSDP_CHECKPOINT_SELECTIVE });

/* A backward of each of two forwards gives the bits of two micro-steps, whose forwards come one by one. */
SameTest(parity_modes, of_forwards_run_ahead_change_no_bit, "transformer",
         { .W = 2, .n_micro = 2, .sync = FSDP_SYNC_EVERY }, { TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY },
         WAY(TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY, .reshard = FSDP_RESHARD_FALSE,
             .overlap = FSDP_OVERLAP_ON));
SameTest(parity_modes, of_forwards_run_ahead_and_reduced_last_change_no_bit, "transformer",
         { .W = 2, .n_micro = 2, .sync = FSDP_SYNC_LAST }, { TWO_BACKWARDS, .sync = FSDP_SYNC_LAST },
         WAY(TWO_BACKWARDS, .sync = FSDP_SYNC_LAST, .reshard = FSDP_RESHARD_FALSE,
             .keep_after_backward = true));

#define NARROW .W = 4, .param_dtype = FSDP_BF16
SameTest(parity_modes, of_resharding_change_no_bit_with_bfloat16, "transformer", { NARROW },
         { NARROW, .reshard = FSDP_RESHARD_TRUE }, { NARROW, .reshard_size = 2 },
         { NARROW, .reshard = FSDP_RESHARD_FALSE, .overlap = FSDP_OVERLAP_ON },
         { NARROW, .recompute = FSDP_CHECKPOINT_FULL });

/* Mutants */

Test(parity_mutants, each_is_seen, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 2, .steps = 2, .sabotage = SUMS_FOR_MEANS },
        { .W = 2, .steps = 2, .sabotage = LOSES_A_ROW },
        { .W = 2, .steps = 2, .sabotage = REDUCES_TOO_LITTLE },
        { .W = 2, .steps = 2, .sabotage = MISSES_A_WAIT, .overlap = FSDP_OVERLAP_ON, .slow = SLOW_GATHER },
        { TWO_FORWARDS, .steps = 2, .sabotage = MIXES_BATCHES },
        { TWO_FORWARDS, .steps = 2, .sabotage = SHARES_ACTIVATIONS },
        { TWO_BACKWARDS, .steps = 2, .sabotage = SHARES_ACTIVATIONS },
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
