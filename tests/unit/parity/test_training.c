/*
 * test_fully_shard_training.py: each case against PyTorch without sharding in fp64, over worlds of 1 to 8 ranks and the
 * ways of sharding. Same mathematics, so losses to 2e-6, norms and gradients to 5e-6.
 */
#include <criterion/criterion.h>

#include "tests/unit/parity/case.h"

#define N(ways) (sizeof(ways) / sizeof *(ways))

/* Shapes that no world size divides, and at 8 ranks fewer rows than ranks. */
Test(parity_training, uneven_linears_at_every_world_size, .timeout = 3000)
{
    static const char *const cases[] = { "linears-a", "linears-b", "linears-c" };

    for (size_t c = 0; c < N(cases); c++)
        for (int W = 1; W <= 8; W++) {
            const struct way ways[] = { { .W = W }, { .W = W, .groups = ROOT_ONLY } };

            case_expect(cases[c], ways, N(ways));
        }
}

Test(parity_training, transformer_at_every_world_size, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 1 }, { .W = 2 }, { .W = 3 }, { .W = 4 },
                                       { .W = 5 }, { .W = 6 }, { .W = 7 }, { .W = 8 } };

    case_expect("transformer", ways, N(ways));
}

Test(parity_training, rms_norm_at_every_world_size, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 1 },
        { .W = 2 },
        { .W = 3 },
        { .W = 4 },
        { .W = 5 },
        { .W = 8 },
        { .W = 4, .replicate = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
        { .W = 2, .recompute = FSDP_CHECKPOINT_FULL, .reshard = FSDP_RESHARD_TRUE },
        { .W = 3, .recompute = FSDP_CHECKPOINT_SELECTIVE }
    };

    case_expect("rms", ways, N(ways));
}

Test(parity_training, reshard_modes, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 2, .reshard = FSDP_RESHARD_TRUE },
        { .W = 3, .reshard = FSDP_RESHARD_FALSE },
        { .W = 4, .reshard_size = 2 },
        { .W = 6, .reshard_size = 3 },
        { .W = 4, .reshard_size = 4 },
        { .W = 4, .reshard_size = 1 },
        { .W = 4, .keep_after_backward = true },
    };

    case_expect("transformer", ways, N(ways));
}

Test(parity_training, groupings, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 3, .groups = ROOT_ONLY },
                                       { .W = 3, .groups = IN_LISTS },
                                       { .W = 3, .groups = BY_LINEAR },
                                       { .W = 2, .groups = BY_LINEAR, .reshard = FSDP_RESHARD_TRUE } };

    case_expect("transformer", ways, N(ways));
}

Test(parity_training, explicit_prefetch, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 2, .prefetch = 1 },
                                       { .W = 3, .prefetch = 2 },
                                       { .W = 2, .prefetch = 2, .overlap = FSDP_OVERLAP_ON } };

    case_expect("transformer", ways, N(ways));
}

Test(parity_training, gradient_accumulation, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 1, .n_micro = 3 },
        { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_LAST },
        { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_LAST, .calls = true },
        { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .calls = true },
        { .W = 3, .n_micro = 2, .reshard = FSDP_RESHARD_FALSE, .keep_after_backward = true, .calls = true },
        { .W = 4,
          .n_micro = 3,
          .sync = FSDP_SYNC_EVERY,
          .replicate = 2,
          .defers_all_reduce = true,
          .calls = true },
        { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
        { .W = 4, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .reshard = FSDP_RESHARD_TRUE },
        { .W = 3,
          .n_micro = 2,
          .sync = FSDP_SYNC_LAST,
          .reshard = FSDP_RESHARD_FALSE,
          .keep_after_backward = true },
        { .W = 4, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .reshard_size = 2 },
        { .W = 4, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .replicate = 2 },
        { .W = 4, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .replicate = 2, .defers_all_reduce = true },
        { .W = 4, .n_micro = 3, .sync = FSDP_SYNC_LAST, .replicate = 2, .reshard = FSDP_RESHARD_FALSE },
    };

    case_expect("transformer", ways, N(ways));
}

Test(parity_training, hybrid_sharding, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 4, .replicate = 2 },
                                       { .W = 4, .replicate = 4 },
                                       { .W = 6, .replicate = 3, .reshard = FSDP_RESHARD_TRUE },
                                       { .W = 8, .replicate = 2, .reshard = FSDP_RESHARD_FALSE },
                                       { .W = 8, .replicate = 2, .reshard_size = 2 } };

    case_expect("transformer", ways, N(ways));
    case_expect("linears-c", ways, 4);
}

/* Sums in both reductions and one division by all ranks behind them. */
Test(parity_training, forced_sums, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 2, .force_sum = true },
        { .W = 4, .replicate = 2, .force_sum = true },
        { .W = 4,
          .replicate = 2,
          .n_micro = 3,
          .sync = FSDP_SYNC_EVERY,
          .defers_all_reduce = true,
          .force_sum = true },
    };

    case_expect("transformer", ways, N(ways));
}

Test(parity_training, activation_checkpointing, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 2, .recompute = FSDP_CHECKPOINT_FULL },
        { .W = 3, .recompute = FSDP_CHECKPOINT_SELECTIVE },
        { .W = 2, .recompute = FSDP_CHECKPOINT_FULL, .reshard = FSDP_RESHARD_TRUE, .n_micro = 2 },
        { .W = 3, .recompute = FSDP_CHECKPOINT_FULL, .groups = BY_LINEAR },
    };

    case_expect("transformer", ways, N(ways));
    case_expect("tied", ways, 3);
}

Test(parity_training, tied_parameters, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 1 },
                                       { .W = 2 },
                                       { .W = 5 },
                                       { .W = 4, .replicate = 2 },
                                       { .W = 3, .n_micro = 2, .sync = FSDP_SYNC_EVERY } };

    case_expect("tied", ways, N(ways));
}

Test(parity_training, a_module_used_twice, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 1 },
                                       { .W = 2 },
                                       { .W = 3, .reshard = FSDP_RESHARD_FALSE },
                                       { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
                                       { .W = 4, .reshard_size = 2 } };

    case_expect("twice", ways, N(ways));
}

/* Half of the ranks use what the others do not: zeros are reduced in its place. */
Test(parity_training, parameters_that_some_ranks_do_not_use, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 2 },
                                       { .W = 4 },
                                       { .W = 2, .reshard = FSDP_RESHARD_FALSE },
                                       { .W = 4, .replicate = 2 },
                                       { .W = 6, .overlap = FSDP_OVERLAP_ON } };

    case_expect("unused", ways, N(ways));
}

/* Both sets of activations are there; one backward, of the sum of the losses. */
Test(parity_training, two_forwards_before_a_backward, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 1, .n_micro = 2, .forwards = 2 },
        { .W = 2, .n_micro = 2, .forwards = 2 },
        { .W = 1, .n_micro = 2, .forwards = 2, .halves = true },
        { .W = 2, .n_micro = 2, .forwards = 2, .halves = true },
        { .W = 2, .n_micro = 3, .forwards = 3, .reshard = FSDP_RESHARD_TRUE, .halves = true },
        { .W = 3, .n_micro = 2, .forwards = 2, .reshard = FSDP_RESHARD_FALSE },
        { .W = 2, .n_micro = 2, .forwards = 2, .overlap = FSDP_OVERLAP_ON, .halves = true },
        { .W = 4, .n_micro = 2, .forwards = 2, .reshard_size = 2 },
        { .W = 4, .n_micro = 2, .forwards = 2, .replicate = 2 },
        { .W = 2, .n_micro = 2, .forwards = 2, .recompute = FSDP_CHECKPOINT_FULL },
        { .W = 2, .n_micro = 4, .forwards = 2, .sync = FSDP_SYNC_LAST },
        { .W = 2, .n_micro = 4, .forwards = 2, .sync = FSDP_SYNC_EVERY, .halves = true },
        { .W = 2, .n_micro = 4, .forwards = 2, .sync = FSDP_SYNC_LAST, .calls = true },
    };

    case_expect("transformer", ways, N(ways));
    case_expect("twice", ways, 4);
    case_expect("tied", ways, 4);
    case_expect("linears-a", ways, 4);
    case_expect("biases", ways, 2);
    case_expect("leading", ways, 2);
}

/* a.backward() and then b.backward(). */
Test(parity_training, two_forwards_and_a_backward_of_each, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 1, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH },
        { .W = 2, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH },
        { .W = 1, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH, .halves = true },
        { .W = 2,
          .n_micro = 2,
          .forwards = 2,
          .backwards = FSDP_BACKWARD_OF_EACH,
          .halves = true,
          .sync = FSDP_SYNC_EVERY },
        { .W = 2,
          .n_micro = 3,
          .forwards = 3,
          .backwards = FSDP_BACKWARD_OF_EACH,
          .reshard = FSDP_RESHARD_TRUE,
          .sync = FSDP_SYNC_EVERY,
          .halves = true },
        { .W = 3,
          .n_micro = 2,
          .forwards = 2,
          .backwards = FSDP_BACKWARD_OF_EACH,
          .reshard = FSDP_RESHARD_FALSE,
          .keep_after_backward = true },
        { .W = 2,
          .n_micro = 4,
          .forwards = 2,
          .backwards = FSDP_BACKWARD_OF_EACH,
          .overlap = FSDP_OVERLAP_ON,
          .halves = true },
        { .W = 4,
          .n_micro = 4,
          .forwards = 2,
          .backwards = FSDP_BACKWARD_OF_EACH,
          .replicate = 2,
          .sync = FSDP_SYNC_EVERY,
          .defers_all_reduce = true },
        { .W = 4, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH, .reshard_size = 2 },
        { .W = 2,
          .n_micro = 2,
          .forwards = 2,
          .backwards = FSDP_BACKWARD_OF_EACH,
          .sync = FSDP_SYNC_EVERY,
          .recompute = FSDP_CHECKPOINT_SELECTIVE },
    };

    case_expect("transformer", ways, N(ways));
    case_expect("twice", ways, 4);
    case_expect("tied", ways, 4);
    case_expect("linears-a", ways, 4);
}

Test(parity_training, other_dimensions, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 2, .columns = true },
                                       { .W = 4, .columns = true, .n_micro = 2 },
                                       { .W = 4, .columns = true, .replicate = 2 } };

    case_expect("transformer", ways, N(ways));
}

Test(parity_training, optimizer_groups, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 1 }, { .W = 3 }, { .W = 4, .replicate = 2 } };

    case_expect("groups", ways, N(ways));
}
