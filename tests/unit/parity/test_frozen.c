/*
 * test_fully_shard_frozen.py: only biases learn. What is frozen is gathered, and neither reduced nor updated.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/parity/case.h"

WaysTest(parity_frozen, only_biases_learn, "biases", { .W = 1 }, { .W = 2 },
         { .W = 3, .reshard = FSDP_RESHARD_TRUE }, { .W = 4, .replicate = 2 },
         { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY }, { .W = 2, .recompute = FSDP_CHECKPOINT_FULL });

/* A block that backward never comes to is neither gathered for it nor computed again. */
WaysTest(parity_frozen, a_leading_block_learns_nothing, "leading", { .W = 1 }, { .W = 2 },
         { .W = 3, .reshard = FSDP_RESHARD_TRUE, .groups = BY_LINEAR },
         { .W = 2, .recompute = FSDP_CHECKPOINT_FULL, .groups = BY_LINEAR },
         { .W = 2, .n_micro = 3, .reshard = FSDP_RESHARD_FALSE },
         { .W = 2, .overlap = FSDP_OVERLAP_ON, .n_micro = 2 });

Test(parity_frozen, what_is_frozen_has_no_gradient_and_the_weights_it_began_with, .timeout = 3000)
{
    struct reference *reference = reference_read("biases");
    static struct seen before, after;

    case_run(reference, &(struct way){ .W = 3, .steps = 1 }, &before);
    case_run(reference, &(struct way){ .W = 3, .steps = 4 }, &after);

    for (size_t i = 0; i < after.n_parameters; i++) {
        const char *name = after.parameters[i].name;
        const bool bias = strcmp(strrchr(name, '.'), ".bias") == 0;
        const bool moved = memcmp(before.parameters[i].weight, after.parameters[i].weight,
                                  after.parameters[i].n_elems * sizeof(float)) != 0;

        cr_expect(bias == moved, "%s", name);
        cr_expect(bias == (after.parameters[i].gradient != NULL), "%s", name);
    }
    seen_free(&before);
    seen_free(&after);
    reference_free(reference);
}
