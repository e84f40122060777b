/*
 * The order of gathers and reductions, compared with PyTorch's FSDP2 for three blocks. It is what that calls
 * unshard (U) and post-backward (PB), with the root's parameters in a group of their own.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/plan/models.h"

TestSuite(plan_text, .fini = planned_drop);

TestSuite(plan_program, .fini = planned_drop);

/* A plan of `blocks` in a world of W times R ranks, and its events. */
static const struct order {
    struct blocks blocks;
    int W, R;
    bool gathers_ahead;
    const char *events;
} orders[] = {
    { { .n_blocks = 3 }, 2, 1, true, " U(root) U0 U1 U2 | U2 U1 PB2 U0 PB1 PB0 PB(root)" },
    { { .n_blocks = 3, .reshard_blocks = FSDP_RESHARD_TRUE, .reshard_root = FSDP_RESHARD_TRUE },
      2,
      1,
      true,
      " U(root) U0 U1 U2 | U(root) U2 U1 PB2 U0 PB1 PB0 PB(root)" },
    { { .n_blocks = 3, .reshard_blocks = FSDP_RESHARD_FALSE, .reshard_root = FSDP_RESHARD_FALSE },
      2,
      1,
      true,
      " U(root) U0 U1 U2 | PB2 PB1 PB0 PB(root)" },
    { { .n_blocks = 1 }, 2, 1, true, " U(root) U0 | U0 PB0 PB(root)" },
    /* A block that runs twice is gathered for each run, and reduced once, when both backwards are done. */
    { { .n_blocks = 1, .visits = 2 }, 2, 1, true, " U(root) U0 U0 | U0 U0 PB0 PB(root)" },
    { { .n_blocks = 2, .visits = 2 }, 2, 1, true, " U(root) U0 U1 U0 U1 | U1 U0 U1 U0 PB1 PB0 PB(root)" },
    { { .n_blocks = 3 }, 2, 1, false, " U(root) U0 U1 U2 | U2 PB2 U1 PB1 U0 PB0 PB(root)" },
    /* Over two dimensions each reduce-scatter is followed by its all-reduce. */
    { { .n_blocks = 2 }, 2, 2, true, " U(root) U0 U1 | U1 U0 PB1 AR1 PB0 AR0 PB(root) AR(root)" },
    /* Without ranks to shard over nothing is gathered or scattered; gradients go to the replicas. */
    { { .n_blocks = 2 }, 1, 3, true, " | AR1 AR0 AR(root)" },
};

Test(plan_program, gathers_and_reduces_in_the_order_of_fsdp2)
{
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct plan_options options = options_for(orders[i].W);
        struct blocks blocks = orders[i].blocks;

        options.R = orders[i].R;
        options.prefetch = orders[i].gathers_ahead;
        plan_it(&made, blocks_build(&blocks), &options, true);

        expect_events(&made.plan, false, orders[i].events);
        for (int e = 0; e < made.plan.n_entries && orders[i].W > 1; e++)
            cr_expect(made.plan.entries[e].kind != PLAN_ALL_REDUCE ||
                      (made.plan.entries[e].stream == PLAN_ALL_REDUCES &&
                       made.plan.entries[e].waits[PLAN_REDUCES] == e - 1));
    }
}

/* Left to the last micro-step it is one of the shards, after every sum has been stored in them. */
Test(plan_program, a_deferred_all_reduce_is_the_last_micro_steps)
{
    struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 2 };
    struct fsdp_module *root = blocks_build(&blocks);
    int n = 0;

    options.R = 2;
    options.accumulates = true;
    options.gradient_sync = FSDP_SYNC_EVERY;
    fsdp_module_set_requires_all_reduce(root, false, true);
    plan_it(&made, root, &options, true);

    for (int i = 0; i < made.plan.n_entries; i++) {
        const struct plan_entry *e = &made.plan.entries[i];

        if (e->kind != PLAN_ALL_REDUCE)
            continue;
        cr_expect(e->when == PLAN_LAST && e->all_reduce.packed == -1);
        cr_expect(e[-1].kind == PLAN_STORE && e[-1].index == e->index && e[-1].store.adds &&
                  e[-1].when == PLAN_ALWAYS);
        n++;
    }
    cr_expect(n == 3);
}

/* One unit that synchronises in every micro-step among units that do not, and the other way round. */
Test(plan_program, each_unit_synchronises_as_it_was_told)
{
    for (int every = 0; every < 2; every++) {
        struct plan_options options = options_for(2);
        struct blocks blocks = { .n_blocks = 2 };
        struct fsdp_module *root = blocks_build(&blocks);

        options.accumulates = true;
        options.gradient_sync = every ? FSDP_SYNC_LAST : FSDP_SYNC_EVERY;
        fsdp_module_set_requires_gradient_sync(root, every != 0, false);
        plan_it(&made, root, &options, true);

        for (int i = 0; i < made.plan.n_entries; i++)
            if (made.plan.entries[i].kind == PLAN_REDUCE) {
                const bool is_root = made.plan.groups[made.plan.entries[i].index].unit == root;

                cr_expect(made.plan.entries[i].when == (is_root == (every != 0) ? PLAN_ALWAYS : PLAN_LAST));
            }
    }
}

static enum fsdp_status no_hook(void *row, size_t n_elems, enum fsdp_dtype dtype,
                                struct device_stream *stream, void *user, struct fsdp_err *err)
{
    (void)row, (void)n_elems, (void)dtype, (void)stream, (void)user, (void)err;
    return FSDP_OK;
}

/* A hook sees the row before it is stored, in worlds of any shape, and nothing is reduced past it. */
Test(plan_program, a_hook_is_called_once_for_each_reduction_of_its_unit)
{
    for (int W = 1; W <= 2; W++)
        for (int R = 1; R <= 2; R++)
            for (int defers = 0; defers < 2; defers++) {
                struct plan_options options = options_for(W);
                struct blocks blocks = { .n_blocks = 1 };
                struct fsdp_module *root = blocks_build(&blocks);
                int n_calls = 0;

                options.R = R;
                options.accumulates = true;
                options.gradient_sync = FSDP_SYNC_EVERY;
                fsdp_module_set_requires_all_reduce(root, !defers, true);
                fsdp_module_set_all_reduce_hook(root, no_hook, NULL);
                plan_it(&made, root, &options, true);

                for (int i = 0; i < made.plan.n_entries; i++) {
                    const struct plan_entry *e = &made.plan.entries[i];

                    cr_expect(!plan_calls_hook(e) || made.plan.groups[e->index].unit == root);
                    cr_expect(!plan_calls_hook(e) ||
                              e->kind == (defers && R > 1 ? PLAN_ALL_REDUCE : PLAN_STORE));
                    n_calls += plan_calls_hook(e);
                }
                cr_expect(n_calls == 1, "W %d R %d: %d", W, R, n_calls);
            }
}

Test(plan_program, a_world_of_one_gathers_and_reduces_nothing)
{
    plan_blocks(1, (struct blocks){ .n_blocks = 3 });

    for (int i = 0; i < made.plan.n_entries; i++) {
        const enum plan_entry_kind kind = made.plan.entries[i].kind;

        cr_expect(kind == PLAN_FORWARD || kind == PLAN_LOSS || kind == PLAN_BACKWARD, "entry %d is %s", i,
                  plan_entry_name(kind));
    }
    cr_expect(made.plan.class_bytes[PLAN_GATHERED] == 0 && made.plan.class_bytes[PLAN_REDUCED] == 0);
}

Test(plan_program, parameters_are_freed_before_gradients_are_packed)
{
    plan_blocks(2, (struct blocks){ .n_blocks = 2 });

    for (int i = 1; i < made.plan.n_entries; i++)
        if (made.plan.entries[i].kind == PLAN_PACK)
            cr_expect(made.plan.entries[i - 1].kind == PLAN_RESHARD &&
                      made.plan.entries[i - 1].index == made.plan.entries[i].index);
    cr_expect_eq(count_entries(&made.plan, PLAN_PACK), 3);
}

Test(plan_program, the_next_gather_is_issued_before_the_computation_of_the_current)
{
    int unpacked = -1, n_seen = 0;

    plan_blocks(2, (struct blocks){ .n_blocks = 3 });

    for (int i = 0; made.plan.entries[i].kind != PLAN_LOSS; i++) {
        const struct plan_entry *e = &made.plan.entries[i];

        if (e->kind == PLAN_UNPACK)
            unpacked = i;
        if (e->kind == PLAN_GATHER && i > 0) {
            cr_expect(i == unpacked + 1, "entry %d gathers after computing", i);
            n_seen++;
        }
    }
    cr_expect(n_seen == 3);
}

/* With gradients that stay, only the last micro-step reduces; with parameters that stay, only the first
 * gathers. */
Test(plan_program, accumulating_reduces_in_the_last_micro_step)
{
    struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 2,
                             .keep_after_backward = true,
                             .reshard_blocks = FSDP_RESHARD_FALSE };

    options.accumulates = true;
    plan_it(&made, blocks_build(&blocks), &options, true);

    for (int i = 0; i < made.plan.n_entries; i++) {
        const struct plan_entry *e = &made.plan.entries[i];

        if (e->kind == PLAN_PACK || e->kind == PLAN_REDUCE || e->kind == PLAN_RESHARD)
            cr_expect(e->when == PLAN_LAST, "entry %d", i);
        else if (e->kind == PLAN_GATHER || e->kind == PLAN_UNPACK)
            cr_expect(e->when == PLAN_FIRST, "entry %d", i);
        else
            cr_expect(e->when == PLAN_ALWAYS, "entry %d", i);
    }
}

Test(plan_program, synchronising_every_micro_step_reduces_in_each)
{
    struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 2 };

    options.accumulates = true;
    options.gradient_sync = FSDP_SYNC_EVERY;
    plan_it(&made, blocks_build(&blocks), &options, true);

    for (int i = 0; i < made.plan.n_entries; i++)
        cr_expect(made.plan.entries[i].when == PLAN_ALWAYS);
}

Test(plan_program, evaluation_ends_with_every_parameter_freed)
{
    const struct plan_options options = options_for(3);
    struct blocks blocks = { .n_blocks = 3 };
    int n_whole = 0;

    plan_it(&made, blocks_build(&blocks), &options, false);

    for (int i = 0; i < made.plan.n_entries; i++) {
        n_whole += made.plan.entries[i].kind == PLAN_UNPACK;
        n_whole -= made.plan.entries[i].kind == PLAN_RESHARD;
        cr_expect(made.plan.entries[i].kind != PLAN_BACKWARD && made.plan.entries[i].kind != PLAN_REDUCE);
    }
    cr_expect(n_whole == 0);
}

/* W=4, rows of 5x3 and 7: the example of how FSDP2 lays a group out. */
Test(plan_groups, rows_are_cut_and_padded_as_fsdp2_does)
{
    const struct plan_options options = options_for(4);
    struct blocks none = { 0 };
    struct fsdp_module *root = blocks_build(&none);
    struct fsdp_module *extra = fsdp_module_add(root, "extra", NULL, NULL);
    const struct plan_param *p0, *p1;

    fsdp_module_add_parameter(extra, "p0", 2, (size_t[]){ 5, 3 }, FSDP_INIT_ZEROS, NULL);
    fsdp_module_add_parameter(extra, "p1", 1, (size_t[]){ 7 }, FSDP_INIT_ZEROS, NULL);
    plan_it(&made, root, &options, true);

    p0 = &made.plan.params[made.plan.n_params - 2];
    p1 = &made.plan.params[made.plan.n_params - 1];
    cr_expect(p0->chunk_elems == 6 && p1->chunk_elems == 2);
    cr_expect(p1->row_offset == p0->row_offset + 6);
    cr_expect(!p0->has_grad && !p1->has_grad, "nothing uses them");
}

Test(plan_text, names_every_entry_and_the_arena)
{
    char *text;

    plan_blocks(2, (struct blocks){ .n_blocks = 1 });
    text = plan_text(&made.plan);

    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, "   0 gathers gather   (root) record"), "%s", text);
    cr_expect_not_null(strstr(text, "backward layers.0.w2"));
    cr_expect_not_null(strstr(text, "loss     cross_entropy"));
    cr_expect_not_null(strstr(text, "# arena "));
    free(text);
}

Test(plan_text, every_kind_of_entry_and_every_stream_has_a_name)
{
    for (int kind = PLAN_COPY_IN; kind <= PLAN_COMPLETE; kind++)
        cr_expect_not_null(plan_entry_name((enum plan_entry_kind)kind), "kind %d", kind);
    for (int stream = 0; stream < PLAN_N_STREAMS; stream++)
        cr_expect_not_null(plan_stream_name((enum plan_stream)stream), "stream %d", stream);
}
