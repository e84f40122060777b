/*
 * Shards in host memory. Only copies are added to a plan, each on a stream of its own, in before the gather
 * and out after the reduction. Everything else keeps its order.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/plan/models.h"

TestSuite(plan_offload, .fini = planned_drop);

static const struct fsdp_mixed_precision_policy bf16 = { .param_dtype = FSDP_BF16,
                                                         .reduce_dtype = FSDP_BF16,
                                                         .output_dtype = FSDP_DTYPE_NONE,
                                                         .cast_forward_inputs = true };

static void plan_for(struct planned *p, struct blocks *blocks, int W, bool host_apart)
{
    struct plan_options options = options_for(W);

    options.host_apart = host_apart;
    plan_it(p, blocks_build(blocks), &options, true);
}

Test(plan_offload, where_memory_is_the_hosts_nothing_changes)
{
    struct blocks kept = { .n_blocks = 2 }, offloads = { .n_blocks = 2, .offloads = true };
    struct planned a, b;
    char *left, *right;

    plan_for(&a, &kept, 2, true);
    plan_for(&b, &offloads, 2, false);
    left = plan_text(&a.plan);
    right = plan_text(&b.plan);
    cr_expect_str_eq(left, right);
    free(left);
    free(right);
    planned_fini(&a);
    planned_fini(&b);
}

/*
 * A float32 row is copied to its place among the gathered, and from its place among the packed: there is no
 * third.
 */
Test(plan_offload, adds_copies_and_changes_no_order)
{
    struct blocks kept = { .n_blocks = 3 }, offloads = { .n_blocks = 3, .offloads = true };
    struct planned a, b;
    int at = 0, n_in = 0, n_out = 0;

    plan_for(&a, &kept, 3, true);
    plan_for(&b, &offloads, 3, true);
    for (int i = 0; i < b.plan.n_entries; i++) {
        const struct plan_entry *e = &b.plan.entries[i];

        if (e->kind == PLAN_COPY_IN) {
            cr_expect(e->stream == PLAN_COPIES_IN && e[1].kind == PLAN_GATHER && e[1].index == e->index &&
                      e->copy_in.gathered == e[1].gather.gathered && e[1].waits[PLAN_COPIES_IN] == i);
            n_in++;
        } else if (e->kind == PLAN_COPY_OUT) {
            cr_expect(e->stream == PLAN_COPIES_OUT && e[-1].kind == PLAN_REDUCE && e[-1].index == e->index &&
                      !e[-1].reduce.into_shards && e->copy_out.packed == e[-1].reduce.packed &&
                      e->waits[PLAN_REDUCES] == i - 1);
            n_out++;
        } else {
            cr_assert(at < a.plan.n_entries && a.plan.entries[at].kind == e->kind &&
                          a.plan.entries[at].index == e->index && a.plan.entries[at].stream == e->stream,
                      "entry %d", i);
            at++;
        }
    }
    cr_expect(at == a.plan.n_entries && n_in == 7 && n_out == 4);
    planned_fini(&a);
    planned_fini(&b);
}

/* Between a copy in that was issued early and who waits for it there is something to compute. */
Test(plan_offload, copies_go_beside_what_computes)
{
    for (int W = 1; W <= 2; W++) {
        struct blocks blocks = { .n_blocks = 3, .offloads = true, .mp_policy = W == 2 ? &bf16 : NULL };
        const struct plan *plan = &made.plan;
        int n_hidden = 0, n_copies = 0;

        plan_for(&made, &blocks, W, true);
        for (int i = 0; i < plan->n_entries; i++) {
            bool hidden = false;

            if (plan->entries[i].kind != PLAN_COPY_IN)
                continue;
            for (int j = i + 1;
                 plan->entries[j].kind != PLAN_UNPACK || plan->entries[j].index != plan->entries[i].index;
                 j++)
                hidden =
                    hidden ||
                    (plan->entries[j].stream == PLAN_COMPUTE && plan->entries[j].waits[PLAN_COPIES_IN] < i &&
                     (plan->entries[j].kind == PLAN_FORWARD || plan->entries[j].kind == PLAN_BACKWARD));
            n_hidden += hidden;
            n_copies++;
        }
        /* Ahead of the first there is nothing. */
        cr_expect(n_copies == 7 && n_hidden == 6, "W %d: %d of %d", W, n_hidden, n_copies);
    }
}

/* What is added to, or is of another dtype, has a row of its own: copied in where it adds, and out. */
Test(plan_offload, sums_are_made_on_the_device)
{
    for (int W = 1; W <= 2; W++)
        for (int R = 1; R <= 2; R++)
            for (int defers = 0; defers < R; defers++) {
                struct plan_options options = options_for(W);
                struct blocks blocks = { .n_blocks = 1, .offloads = true };
                struct fsdp_module *root = blocks_build(&blocks);
                int n_out = 0;

                options.R = R;
                options.accumulates = options.host_apart = true;
                options.gradient_sync = FSDP_SYNC_EVERY;
                fsdp_module_set_requires_all_reduce(root, !defers, true);
                plan_it(&made, root, &options, true);
                for (int i = 0; i < made.plan.n_entries; i++) {
                    const struct plan_entry *e = &made.plan.entries[i];

                    if (e->kind == PLAN_STORE)
                        cr_expect(e->store.adds && e->store.sum >= 0 && e->waits[PLAN_COPIES_IN] >= 0);
                    if (e->kind == PLAN_ALL_REDUCE)
                        cr_expect((e->all_reduce.sum >= 0) == (defers != 0) &&
                                  (e->all_reduce.packed >= 0) == (defers == 0));
                    if (e->kind != PLAN_COPY_OUT)
                        continue;
                    cr_expect(e->copy_out.sum >= 0 && e->copy_out.packed < 0 && e->when == PLAN_ALWAYS);
                    cr_expect_eq(e->copy_out.sum,
                                 e[-1].kind == PLAN_STORE ? e[-1].store.sum : e[-1].all_reduce.sum);
                    n_out++;
                }
                cr_expect(n_out == 2, "W %d R %d: %d", W, R, n_out);
            }
}

static enum fsdp_status no_hook(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model, (void)group, (void)user, (void)err;
    return FSDP_OK;
}

/* The unit's hook reads gradient shards: they have arrived in host memory. */
Test(plan_offload, a_unit_is_complete_when_its_gradients_are_out)
{
    for (int both = 0; both < 2; both++) {
        struct plan_options options = options_for(2);
        struct blocks blocks = { .n_blocks = 2, .offloads = true, .mp_policy = both ? &bf16 : NULL };
        struct fsdp_module *root = blocks_build(&blocks);
        int n = 0;

        options.host_apart = true;
        fsdp_module_register_post_accumulate_grad_hook(root, no_hook, NULL, true);
        plan_it(&made, root, &options, true);
        for (int i = 0; i < made.plan.n_entries; i++) {
            const struct plan_entry *e = &made.plan.entries[i];

            if (e->kind != PLAN_COMPLETE)
                continue;
            cr_expect(e[-1].kind == PLAN_COPY_OUT && e[-1].index == e->index &&
                      e->waits[PLAN_COPIES_OUT] == i - 1);
            n++;
        }
        cr_expect(n == 3);
    }
}
