/*
 * The order of gathers and reductions, held against PyTorch's FSDP2 for three blocks: what it calls unshard
 * (U) and post-backward (PB), with the root's parameters in a group of their own.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/plan/models.h"

static const char *short_name(const struct plan *plan, int group, char out[16])
{
    const char *path = plan->groups[group].unit->path;

    snprintf(out, 16, "%s", path[0] == '\0' ? "(root)" : strrchr(path, '.') + 1);
    return out;
}

/* "U(root) U0 ... | U2 ...": the bar is the loss. */
static void events(const struct plan *plan, char *out, size_t size)
{
    size_t n = 0;
    char name[16];

    out[0] = '\0';
    for (int i = 0; i < plan->n_entries; i++) {
        const struct plan_entry *e = &plan->entries[i];

        if (e->kind == PLAN_GATHER)
            n += (size_t)snprintf(out + n, size - n, "%sU%s", n > 0 ? " " : "",
                                  short_name(plan, e->index, name));
        else if (e->kind == PLAN_REDUCE)
            n += (size_t)snprintf(out + n, size - n, " PB%s", short_name(plan, e->index, name));
        else if (e->kind == PLAN_ALL_REDUCE)
            n += (size_t)snprintf(out + n, size - n, " AR%s", short_name(plan, e->index, name));
        else if (e->kind == PLAN_LOSS)
            n += (size_t)snprintf(out + n, size - n, " |");
    }
}

struct order {
    struct blocks blocks;
    const char *events;
};

static struct order orders[] = {
    { { .n_blocks = 3 }, "U(root) U0 U1 U2 | U2 U1 PB2 U0 PB1 PB0 PB(root)" },
    { { .n_blocks = 3, .reshard_blocks = FSDP_RESHARD_TRUE, .reshard_root = FSDP_RESHARD_TRUE },
      "U(root) U0 U1 U2 | U(root) U2 U1 PB2 U0 PB1 PB0 PB(root)" },
    { { .n_blocks = 3, .reshard_blocks = FSDP_RESHARD_FALSE, .reshard_root = FSDP_RESHARD_FALSE },
      "U(root) U0 U1 U2 | PB2 PB1 PB0 PB(root)" },
    { { .n_blocks = 1 }, "U(root) U0 | U0 PB0 PB(root)" },
    /* A block that runs twice is gathered for each run, and reduced once, when both backwards are done. */
    { { .n_blocks = 1, .visits = 2 }, "U(root) U0 U0 | U0 U0 PB0 PB(root)" },
    { { .n_blocks = 2, .visits = 2 }, "U(root) U0 U1 U0 U1 | U1 U0 U1 U0 PB1 PB0 PB(root)" },
};

Test(plan_program, gathers_and_reduces_in_the_order_of_fsdp2)
{
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        const struct plan_options options = options_for(2);
        struct planned planned;
        char got[512];

        plan_it(&planned, blocks_build(&orders[i].blocks), &options, true);
        events(&planned.plan, got, sizeof got);

        cr_expect_str_eq(got, orders[i].events, "case %zu: %s, not %s", i, got, orders[i].events);
        planned_fini(&planned);
    }
}

/* Over two dimensions each reduce-scatter is followed by its all-reduce, on a stream of its own. */
Test(plan_program, replicas_are_all_reduced_after_the_reduce_scatter)
{
    struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 2 };
    struct planned planned;
    char got[512];

    options.R = 2;
    plan_it(&planned, blocks_build(&blocks), &options, true);
    events(&planned.plan, got, sizeof got);

    cr_assert_str_eq(got, "U(root) U0 U1 | U1 U0 PB1 AR1 PB0 AR0 PB(root) AR(root)", "%s", got);
    for (int i = 0; i < planned.plan.n_entries; i++)
        if (planned.plan.entries[i].kind == PLAN_ALL_REDUCE) {
            cr_expect(planned.plan.entries[i].stream == PLAN_ALL_REDUCES);
            cr_expect(planned.plan.entries[i].waits[PLAN_REDUCES] == i - 1);
        }
    planned_fini(&planned);
}

/* Left to the last micro-step it is one of the shards, after every sum has been stored in them. */
Test(plan_program, a_deferred_all_reduce_is_the_last_micro_steps)
{
    struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 2 };
    struct fsdp_module *root = blocks_build(&blocks);
    struct planned planned;
    int n = 0;

    options.R = 2;
    options.accumulates = true;
    options.gradient_sync = FSDP_SYNC_EVERY;
    fsdp_module_set_requires_all_reduce(root, false, true);
    plan_it(&planned, root, &options, true);

    for (int i = 0; i < planned.plan.n_entries; i++) {
        const struct plan_entry *e = &planned.plan.entries[i];

        if (e->kind != PLAN_ALL_REDUCE)
            continue;
        cr_expect(e->when == PLAN_LAST && e->packed == -1);
        cr_expect(e[-1].kind == PLAN_STORE && e[-1].index == e->index && e[-1].adds &&
                  e[-1].when == PLAN_ALWAYS);
        n++;
    }
    cr_expect(n == 3);
    planned_fini(&planned);
}

/* Without ranks to shard over nothing is gathered or scattered; gradients go to the replicas. */
Test(plan_program, replicas_alone_only_all_reduce)
{
    struct plan_options options = options_for(1);
    struct blocks blocks = { .n_blocks = 2 };
    struct planned planned;
    char got[512];

    options.R = 3;
    plan_it(&planned, blocks_build(&blocks), &options, true);
    events(&planned.plan, got, sizeof got);

    cr_assert_str_eq(got, " | AR1 AR0 AR(root)", "%s", got);
    planned_fini(&planned);
}

/* One unit that synchronises in every micro-step among units that do not, and the other way round. */
Test(plan_program, each_unit_synchronises_as_it_was_told)
{
    for (int every = 0; every < 2; every++) {
        struct plan_options options = options_for(2);
        struct blocks blocks = { .n_blocks = 2 };
        struct fsdp_module *root = blocks_build(&blocks);
        struct planned planned;

        options.accumulates = true;
        options.gradient_sync = every ? FSDP_SYNC_LAST : FSDP_SYNC_EVERY;
        fsdp_module_set_requires_gradient_sync(root, every != 0, false);
        plan_it(&planned, root, &options, true);

        for (int i = 0; i < planned.plan.n_entries; i++)
            if (planned.plan.entries[i].kind == PLAN_REDUCE) {
                const bool is_root = planned.plan.groups[planned.plan.entries[i].index].unit == root;

                cr_expect(planned.plan.entries[i].when ==
                          (is_root == (every != 0) ? PLAN_ALWAYS : PLAN_LAST));
            }
        planned_fini(&planned);
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
                struct planned planned;
                int n_calls = 0;

                options.R = R;
                options.accumulates = true;
                options.gradient_sync = FSDP_SYNC_EVERY;
                fsdp_module_set_requires_all_reduce(root, !defers, true);
                fsdp_module_set_all_reduce_hook(root, no_hook, NULL);
                plan_it(&planned, root, &options, true);

                for (int i = 0; i < planned.plan.n_entries; i++) {
                    const struct plan_entry *e = &planned.plan.entries[i];

                    cr_expect(!e->calls_hook || planned.plan.groups[e->index].unit == root);
                    cr_expect(!e->calls_hook || e->kind == (defers && R > 1 ? PLAN_ALL_REDUCE : PLAN_STORE));
                    n_calls += e->calls_hook;
                }
                cr_expect(n_calls == 1, "W %d R %d: %d", W, R, n_calls);
                planned_fini(&planned);
            }
}

Test(plan_program, without_prefetch_each_unit_gathers_its_own)
{
    struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 3 };
    struct planned planned;
    char got[512];

    options.prefetch = 0;
    plan_it(&planned, blocks_build(&blocks), &options, true);
    events(&planned.plan, got, sizeof got);

    cr_assert_str_eq(got, "U(root) U0 U1 U2 | U2 PB2 U1 PB1 U0 PB0 PB(root)", "%s", got);
    planned_fini(&planned);
}

Test(plan_program, a_world_of_one_gathers_and_reduces_nothing)
{
    const struct plan_options options = options_for(1);
    struct blocks blocks = { .n_blocks = 3 };
    struct planned planned;

    plan_it(&planned, blocks_build(&blocks), &options, true);

    for (int i = 0; i < planned.plan.n_entries; i++) {
        const enum plan_entry_kind kind = planned.plan.entries[i].kind;

        cr_expect(kind == PLAN_FORWARD || kind == PLAN_LOSS || kind == PLAN_BACKWARD, "entry %d is %s", i,
                  plan_entry_name(kind));
    }
    cr_expect(planned.plan.class_bytes[PLAN_GATHERED] == 0 && planned.plan.class_bytes[PLAN_REDUCED] == 0);
    planned_fini(&planned);
}

Test(plan_program, parameters_are_freed_before_gradients_are_packed)
{
    const struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 2 };
    struct planned planned;
    int n_packs = 0;

    plan_it(&planned, blocks_build(&blocks), &options, true);

    for (int i = 1; i < planned.plan.n_entries; i++)
        if (planned.plan.entries[i].kind == PLAN_PACK) {
            cr_expect(planned.plan.entries[i - 1].kind == PLAN_RESHARD &&
                      planned.plan.entries[i - 1].index == planned.plan.entries[i].index);
            n_packs++;
        }
    cr_expect(n_packs == 3);
    planned_fini(&planned);
}

Test(plan_program, the_next_gather_is_issued_before_the_computation_of_the_current)
{
    const struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 3 };
    int unpacked = -1, n_seen = 0;
    struct planned planned;

    plan_it(&planned, blocks_build(&blocks), &options, true);

    for (int i = 0; planned.plan.entries[i].kind != PLAN_LOSS; i++) {
        const struct plan_entry *e = &planned.plan.entries[i];

        if (e->kind == PLAN_UNPACK)
            unpacked = i;
        if (e->kind == PLAN_GATHER && i > 0) {
            cr_expect(i == unpacked + 1, "entry %d gathers after computing", i);
            n_seen++;
        }
    }
    cr_expect(n_seen == 3);
    planned_fini(&planned);
}

/* With gradients that stay, only the last micro-step reduces; with parameters that stay, only the first
 * gathers. */
Test(plan_program, accumulating_reduces_in_the_last_micro_step)
{
    struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 2,
                             .keep_after_backward = true,
                             .reshard_blocks = FSDP_RESHARD_FALSE };
    struct planned planned;

    options.accumulates = true;
    plan_it(&planned, blocks_build(&blocks), &options, true);

    for (int i = 0; i < planned.plan.n_entries; i++) {
        const struct plan_entry *e = &planned.plan.entries[i];

        if (e->kind == PLAN_PACK || e->kind == PLAN_REDUCE || e->kind == PLAN_RESHARD)
            cr_expect(e->when == PLAN_LAST, "entry %d", i);
        else if (e->kind == PLAN_GATHER || e->kind == PLAN_UNPACK)
            cr_expect(e->when == PLAN_FIRST, "entry %d", i);
        else
            cr_expect(e->when == PLAN_ALWAYS, "entry %d", i);
    }
    planned_fini(&planned);
}

Test(plan_program, synchronising_every_micro_step_reduces_in_each)
{
    struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 2 };
    struct planned planned;

    options.accumulates = true;
    options.gradient_sync = FSDP_SYNC_EVERY;
    plan_it(&planned, blocks_build(&blocks), &options, true);

    for (int i = 0; i < planned.plan.n_entries; i++)
        cr_expect(planned.plan.entries[i].when == PLAN_ALWAYS);
    planned_fini(&planned);
}

Test(plan_program, evaluation_ends_with_every_parameter_freed)
{
    const struct plan_options options = options_for(3);
    struct blocks blocks = { .n_blocks = 3 };
    struct planned planned;
    int n_whole = 0;

    plan_it(&planned, blocks_build(&blocks), &options, false);

    for (int i = 0; i < planned.plan.n_entries; i++) {
        n_whole += planned.plan.entries[i].kind == PLAN_UNPACK;
        n_whole -= planned.plan.entries[i].kind == PLAN_RESHARD;
        cr_expect(planned.plan.entries[i].kind != PLAN_BACKWARD &&
                  planned.plan.entries[i].kind != PLAN_REDUCE);
    }
    cr_expect(n_whole == 0);
    planned_fini(&planned);
}

/* W=4, rows of 5x3 and 7: the example of how FSDP2 lays a group out. */
Test(plan_groups, rows_are_cut_and_padded_as_fsdp2_does)
{
    const struct plan_options options = options_for(4);
    struct blocks none = { 0 };
    struct fsdp_module *root = blocks_build(&none);
    struct fsdp_module *extra = fsdp_module_add(root, "extra", NULL, NULL);
    struct planned planned;
    const struct plan_param *p0, *p1;

    fsdp_module_add_parameter(extra, "p0", 2, (size_t[]){ 5, 3 }, FSDP_INIT_ZEROS, NULL);
    fsdp_module_add_parameter(extra, "p1", 1, (size_t[]){ 7 }, FSDP_INIT_ZEROS, NULL);
    plan_it(&planned, root, &options, true);

    p0 = &planned.plan.params[planned.plan.n_params - 2];
    p1 = &planned.plan.params[planned.plan.n_params - 1];
    cr_expect(p0->chunk_elems == 6 && p1->chunk_elems == 2);
    cr_expect(p1->row_offset == p0->row_offset + 6);
    cr_expect(!p0->has_grad && !p1->has_grad, "nothing uses them");
    planned_fini(&planned);
}

Test(plan_text, names_every_entry_and_the_arena)
{
    const struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 1 };
    struct planned planned;
    char *text;

    plan_it(&planned, blocks_build(&blocks), &options, true);
    text = plan_text(&planned.plan);

    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, "   0 gathers gather   (root) record"), "%s", text);
    cr_expect_not_null(strstr(text, "backward layers.0.w2"));
    cr_expect_not_null(strstr(text, "loss     cross_entropy"));
    cr_expect_not_null(strstr(text, "# arena "));
    free(text);
    planned_fini(&planned);
}

Test(plan_text, every_kind_of_entry_and_every_stream_has_a_name)
{
    for (int kind = PLAN_COPY_IN; kind <= PLAN_COMPLETE; kind++)
        cr_expect_not_null(plan_entry_name((enum plan_entry_kind)kind), "kind %d", kind);
    for (int stream = 0; stream < PLAN_N_STREAMS; stream++)
        cr_expect_not_null(plan_stream_name((enum plan_stream)stream), "stream %d", stream);
}
