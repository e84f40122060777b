/*
 * What changes the order of gathers and reductions, or how much is in flight: explicit lists, units that
 * backward does not need, buffers of packed gradients.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/engine/must.h"
#include "tests/unit/plan/models.h"

TestSuite(plan_schedule, .fini = planned_drop);

static struct fsdp_module *block(struct fsdp_module *root, size_t i)
{
    return fsdp_module_child_at(fsdp_module_child(root, "layers"), i);
}

static void expect(struct blocks *blocks, void (*tune)(struct fsdp_module *root), const char *want)
{
    const struct plan_options options = options_for(2);
    struct fsdp_module *root = blocks_build(blocks);

    tune(root);
    plan_it(&made, root, &options, true);
    expect_events(&made.plan, false, want);
}

static void two_ahead(struct fsdp_module *root)
{
    for (size_t i = 0; i + 2 < 4; i++)
        cr_assert(fsdp_module_set_modules_to_forward_prefetch(
                      block(root, i), (struct fsdp_module *[]){ block(root, i + 1), block(root, i + 2) }, 2,
                      NULL) == FSDP_OK);
    for (size_t i = 2; i < 4; i++)
        cr_assert(fsdp_module_set_modules_to_backward_prefetch(
                      block(root, i), (struct fsdp_module *[]){ block(root, i - 1), block(root, i - 2) }, 2,
                      NULL) == FSDP_OK);
}

Test(plan_schedule, explicit_lists_gather_further_ahead)
{
    struct blocks blocks = { .n_blocks = 4 };

    /* Block 0 brings 1 and 2, block 1 brings 3; in backward block 3 brings 2 and 1, block 2 brings 0. */
    expect(&blocks, two_ahead, " U(root) U0 U1 U2 U3 | U3 U2 U1 PB3 U0 PB2 PB1 PB0 PB(root)");
}

static void wrong_guess(struct fsdp_module *root)
{
    cr_assert(fsdp_module_set_modules_to_backward_prefetch(
                  block(root, 2), (struct fsdp_module *[]){ block(root, 0) }, 1, NULL) == FSDP_OK);
}

/*
 * A mistargeted guess takes the place of the right one; what is needed is then gathered where it is needed.
 */
Test(plan_schedule, a_wrong_guess_stays_gathered_until_it_is_used)
{
    struct blocks blocks = { .n_blocks = 3 };

    expect(&blocks, wrong_guess, " U(root) U0 U1 U2 | U2 U0 PB2 U1 PB1 PB0 PB(root)");
}

Test(plan_schedule, only_units_of_the_tree_are_prefetched)
{
    struct blocks blocks = { .n_blocks = 2 }, others = { .n_blocks = 1 };
    struct fsdp_module *root = blocks_build(&blocks), *other = blocks_build(&others);
    struct fsdp_module *linear = fsdp_module_child(block(root, 0), "w1");
    struct fsdp_err err = { 0 };

    cr_expect(fsdp_module_set_modules_to_forward_prefetch(linear, &root, 1, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_module_set_modules_to_forward_prefetch(root, &linear, 1, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_module_set_modules_to_forward_prefetch(root, &other, 1, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_module_set_reduce_scatter_max_input_buffers(root, 0, true, &err) == FSDP_ERR_ARG);
    fsdp_module_destroy(root);
    fsdp_module_destroy(other);
}

static struct fsdp_value *embed_then_project(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    x = fsdp_call(fsdp_module_child(self, "embedding"), x);
    return fsdp_call(fsdp_module_child(self, "output"), x);
}

Test(plan_schedule, an_embedding_need_not_be_gathered_for_backward_and_a_product_must)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        struct fsdp_module *root = fsdp_module_create(embed_then_project, NULL), *unit;
        const struct plan_options options = options_for(2);
        const struct plan *plan = &made.plan;
        struct fsdp_err err = { 0 };
        int n_gathers = 0;

        fsdp_embedding(root, "embedding", 11, 8);
        fsdp_linear(root, "output", 8, 11, false);
        for (int i = 0; i < 2; i++)
            cr_assert(fsdp_fully_shard(fsdp_module_child(root, i == 0 ? "embedding" : "output"), NULL,
                                       NULL) == FSDP_OK);
        cr_assert(fsdp_fully_shard(root, NULL, NULL) == FSDP_OK);
        unit = fsdp_module_child(root, wrong ? "output" : "embedding");
        fsdp_module_set_unshard_in_backward(unit, false);
        if (wrong) {
            expect_refused(plan_try(&made, root, &options, true, 1, &err), FSDP_ERR_ARG,
                           "the backward of \"output\" reads its parameters", &err);
            continue;
        }
        plan_it(&made, root, &options, true);
        for (int i = 0; i < plan->n_entries; i++)
            n_gathers +=
                plan->entries[i].kind == PLAN_GATHER && plan->groups[plan->entries[i].index].unit == unit;
        cr_expect(n_gathers == 1, "%d gathers", n_gathers);
    }
}

/* Of packed buffers, how many lie apart although one could take the other's place. */
Test(plan_schedule, as_many_packed_buffers_are_apart_as_may_be_in_flight)
{
    for (int n_buffers = 1; n_buffers <= 4; n_buffers++) {
        const struct plan_options options = options_for(2);
        struct blocks blocks = { .n_blocks = 5 };
        struct fsdp_module *root = blocks_build(&blocks);
        const struct plan_entry *packs[8];
        int n = 0;

        cr_assert(fsdp_module_set_reduce_scatter_max_input_buffers(root, n_buffers, true, NULL) == FSDP_OK);
        plan_it(&made, root, &options, true);
        for (int i = 0; i < made.plan.n_entries; i++)
            if (made.plan.entries[i].kind == PLAN_PACK)
                packs[n++] = &made.plan.entries[i];
        cr_assert(n == 6);
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n && j < i + n_buffers; j++) {
                const struct plan_buffer *a = &made.plan.buffers[packs[i]->pack.packed];
                const struct plan_buffer *b = &made.plan.buffers[packs[j]->pack.packed];

                cr_expect(a->offset >= b->offset + b->size_bytes || b->offset >= a->offset + a->size_bytes,
                          "%d buffers: %d and %d share a place", n_buffers, i, j);
            }
    }
}

struct slices {
    int W, k;
    const char *events; /* NULL: refused */
};

/*
 * A slice is kept of each block and of the root, and backward gathers from it, in the order of reshard true.
 */
Test(plan_schedule, slices_are_gathered_from_in_the_order_of_a_full_reshard)
{
    static const char always[] = " U(root) U0 U1 | U(root) U1 U0 PB1 PB0 PB(root)";
    static const struct slices cases[] = {
        { 4, 2, always },
        { 6, 2, always },
        { 6, 3, always },
        { 4, 4, always },
        { 5, 2, NULL },
        { 1, 2, NULL },
        { 4, 1, " U(root) U0 U1 | PB1 PB0 PB(root)" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int W = cases[i].W, k = cases[i].k;
        struct blocks blocks = { .n_blocks = 2,
                                 .reshard_blocks = FSDP_RESHARD_TO,
                                 .reshard_root = FSDP_RESHARD_TO,
                                 .reshard_size = k };
        const struct plan_options options = options_for(W);
        const struct plan *plan = &made.plan;
        struct fsdp_err err = { 0 };
        const enum fsdp_status status = plan_try(&made, blocks_build(&blocks), &options, true, 1, &err);

        cr_expect(status == (cases[i].events != NULL ? FSDP_OK : FSDP_ERR_ARG), "W %d k %d: %s", W, k,
                  err.message);
        if (cases[i].events != NULL)
            expect_events(plan, false, cases[i].events);
        for (int e = 0; e < plan->n_entries && status == FSDP_OK; e++) {
            const struct plan_entry *entry = &plan->entries[e];
            const struct plan_group *group = entry->kind == PLAN_GATHER ? &plan->groups[entry->index] : NULL;

            if (group == NULL)
                continue;
            cr_expect(entry->gather.k == (entry->gather.slice >= 0 ? k : W));
            cr_expect(plan->buffers[entry->gather.gathered].size_bytes ==
                      (entry->gather.slice >= 0 ? group->slice_row_bytes * (size_t)k
                                                : group->row_elems * (size_t)W * sizeof(float)));
        }
    }
}
