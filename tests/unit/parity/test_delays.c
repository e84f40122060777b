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

/* 100 ms at each of these places, on one rank after the other, change no bit of what is sharded over `mesh`. */
static void expect_no_difference(struct way mesh)
{
    static const int places[] = { SLOW_GATHER, SLOW_REDUCE, SLOW_AFTER_FORWARD, SLOW_BEFORE_OPTIMIZER,
                                  SLOW_ALL };
    struct way ways[N(places) + 1];

    mesh.steps = 2;
    for (size_t i = 0; i < N(places); i++) {
        ways[i] = mesh;
        ways[i].slow = places[i];
        ways[i].overlap = FSDP_OVERLAP_ON;
    }
    ways[N(places)] = mesh;
    ways[N(places)].slow = SLOW_ALL;
    expect_same("transformer", &mesh, ways, N(ways));
}

Test(parity_delays, change_no_bit, .timeout = 3000)
{
    expect_no_difference((struct way){ .W = 2 });
}

Test(parity_delays, nor_do_they_of_four_ranks, .timeout = 3000)
{
    expect_no_difference((struct way){ .W = 4 });
}

Test(parity_delays, nor_of_two_copies_of_two_shards, .timeout = 3000)
{
    expect_no_difference((struct way){ .W = 4, .replicate = 2 });
}

/* Each mode slow everywhere, of the same bits as the default where nothing waits. */
Test(parity_delays, nor_do_they_in_any_mode_of_resharding_and_prefetching, .timeout = 3000)
{
#define SLOW .W = 4, .steps = 1, .slow = SLOW_ALL, .overlap = FSDP_OVERLAP_ON
    static const struct way first = { .W = 4, .steps = 1 }, ways[] = {
        { SLOW, .reshard = FSDP_RESHARD_TRUE },
        { SLOW, .reshard = FSDP_RESHARD_FALSE },
        { SLOW, .reshard_size = 2 },
        { SLOW, .keep_after_backward = true },
        { SLOW, .prefetch = 1 },
        { SLOW, .prefetch = 2, .in_flight = 2 },
        { SLOW, .own_reduce_group = true },
    };
    static const struct way copies = { .W = 4, .replicate = 2, .steps = 1 }, of_copies[] = {
        { SLOW, .replicate = 2, .reshard = FSDP_RESHARD_TRUE },
        { SLOW, .replicate = 2, .reshard = FSDP_RESHARD_FALSE },
        { SLOW, .replicate = 2, .prefetch = 2, .in_flight = 2 },
    };
#undef SLOW

    expect_same("transformer", &first, ways, N(ways));
    expect_same("transformer", &copies, of_copies, N(of_copies));
}

Test(parity_delays, nor_do_they_with_parameters_gathered_further_ahead, .timeout = 3000)
{
    static const struct way first = { .W = 2, .steps = 2 }, ways[] = {
        { .W = 2, .steps = 2, .slow = SLOW_ALL, .overlap = FSDP_OVERLAP_ON, .prefetch = 2, .in_flight = 2 },
    };

    expect_same("twice", &first, ways, N(ways));
}

Test(parity_modes, of_resharding_and_prefetching_change_no_bit, .timeout = 3000)
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
Test(parity_modes, of_two_forwards_change_no_bit, .timeout = 3000)
{
    static const struct way first = { TWO_FORWARDS }, ways[] = {
        { TWO_FORWARDS, .reshard = FSDP_RESHARD_TRUE },
        { TWO_FORWARDS, .reshard = FSDP_RESHARD_FALSE },
        { TWO_FORWARDS, .prefetch = 2 },
        { TWO_FORWARDS, .overlap = FSDP_OVERLAP_ON },
        { TWO_FORWARDS, .recompute = FSDP_CHECKPOINT_FULL },
        { TWO_FORWARDS, .recompute = FSDP_CHECKPOINT_SELECTIVE },
    };

    expect_same("transformer", &first, ways, N(ways));
}

/* A backward of each of two forwards gives the bits of two micro-steps, whose forwards come one by one. */
Test(parity_modes, of_forwards_run_ahead_change_no_bit, .timeout = 3000)
{
    static const struct way every = { .W = 2, .n_micro = 2, .sync = FSDP_SYNC_EVERY },
                            last = { .W = 2, .n_micro = 2, .sync = FSDP_SYNC_LAST }, of_every[] = {
                                { TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY },
                                { TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY, .reshard = FSDP_RESHARD_FALSE,
                                  .overlap = FSDP_OVERLAP_ON },
                            }, of_last[] = {
                                { TWO_BACKWARDS, .sync = FSDP_SYNC_LAST },
                                { TWO_BACKWARDS, .sync = FSDP_SYNC_LAST, .reshard = FSDP_RESHARD_FALSE,
                                  .keep_after_backward = true },
                            };

    expect_same("transformer", &every, of_every, N(of_every));
    expect_same("transformer", &last, of_last, N(of_last));
}

Test(parity_modes, of_resharding_change_no_bit_with_bfloat16, .timeout = 3000)
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
