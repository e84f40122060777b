/*
 * What a step sends, compared with the formulas of a ring. U are the padded bytes of all groups, and R those
 * of the root's. A gather of x sends (W - 1) / W of it, and so does a reduce-scatter.
 */
#include <criterion/criterion.h>

#include "shard_runtime/plan/traffic.h"
#include "tests/unit/plan/models.h"

TestSuite(plan_traffic, .fini = planned_drop);

static uint64_t padded(const struct plan *plan, int first_group)
{
    uint64_t bytes = 0;

    for (int g = first_group; g < plan->n_groups; g++)
        bytes += plan->groups[g].row_elems * (uint64_t)plan->options.W * sizeof(float);
    return bytes;
}

struct mode {
    enum fsdp_reshard blocks, root;
    bool keep; /* after backward */
    bool accumulates;
    enum fsdp_gradient_sync sync;
    /*
     * How often all groups, the root's less, are gathered in a micro-step; those of the root; and how often
     * reduced.
     */
    int gathers, root_gathers;
    bool gathered_once; /* in the whole step */
    bool reduced_once;
};

static const struct mode modes[] = {
    { .gathers = 2, .root_gathers = 1 },
    { .blocks = FSDP_RESHARD_TRUE, .root = FSDP_RESHARD_TRUE, .gathers = 2, .root_gathers = 2 },
    { .blocks = FSDP_RESHARD_FALSE, .root = FSDP_RESHARD_FALSE, .gathers = 1, .root_gathers = 1 },
    { .accumulates = true, .sync = FSDP_SYNC_EVERY, .gathers = 2, .root_gathers = 1 },
    { .accumulates = true, .sync = FSDP_SYNC_LAST, .gathers = 2, .root_gathers = 1, .reduced_once = true },
    { .blocks = FSDP_RESHARD_FALSE,
      .root = FSDP_RESHARD_FALSE,
      .keep = true,
      .accumulates = true,
      .sync = FSDP_SYNC_LAST,
      .gathers = 1,
      .root_gathers = 1,
      .gathered_once = true,
      .reduced_once = true },
};

static void check_mode(const struct mode *mode, int W, uint64_t n_micro)
{
    struct blocks blocks = { .n_blocks = 3,
                             .reshard_blocks = mode->blocks,
                             .reshard_root = mode->root,
                             .keep_after_backward = mode->keep };
    struct plan_options options = options_for(W);
    const uint64_t share = (uint64_t)(W - 1), n_gathers = mode->gathered_once ? 1 : n_micro;
    const uint64_t n_reduces = mode->reduced_once ? 1 : n_micro;
    struct plan_traffic traffic;
    uint64_t all, root;

    options.accumulates = mode->accumulates;
    options.gradient_sync = mode->sync;
    plan_it(&made, blocks_build(&blocks), &options, true);
    all = padded(&made.plan, 0);
    root = all - padded(&made.plan, 1);
    plan_count_traffic(&made.plan, n_micro, &traffic);

    cr_assert(traffic.all_gather.sent_bytes * (uint64_t)W ==
                  share * n_gathers *
                      ((uint64_t)mode->gathers * (all - root) + (uint64_t)mode->root_gathers * root),
              "W %d, %lu micro-steps", W, (unsigned long)n_micro);
    cr_assert(traffic.reduce_scatter.sent_bytes * (uint64_t)W == share * n_reduces * all);
    cr_assert(traffic.reduce_scatter.n_calls == (W > 1 ? n_reduces * 4 : 0));
    cr_assert(traffic.all_gather.n_calls ==
              (W > 1 ? n_gathers * (3 * (uint64_t)mode->gathers + (uint64_t)mode->root_gathers) : 0));
    cr_assert(traffic.all_reduce.n_calls == 0 && traffic.all_reduce.sent_bytes == 0);
}

Test(plan_traffic, is_what_the_formulas_say_in_every_mode)
{
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
        for (int W = 1; W <= 9; W++)
            for (uint64_t n_micro = 1; n_micro <= (modes[m].accumulates ? 3u : 1u); n_micro++)
                check_mode(&modes[m], W, n_micro);
}

/*
 * Over (R, W) each group's row is scattered and gathered once more over the copies: 2 (R - 1) / R of it, in
 * the dtype of the reduction. Left to the last micro-step, it is once a step in float32.
 */
Test(plan_traffic, copies_add_an_all_reduce_of_a_row)
{
    for (int R = 2; R <= 4; R++)
        for (int W = 1; W <= 4; W++)
            for (int way = 0; way < 3; way++) {
                struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
                struct blocks blocks = { .n_blocks = 3, .mp_policy = &mp };
                struct plan_options options = options_for(W);
                const uint64_t n_micro = 3, times = way == 2 ? 1 : n_micro;
                const uint64_t size = way == 1 ? 2 : 4;
                struct fsdp_module *root;
                struct plan_traffic traffic;
                uint64_t rows = 0, want = 0;

                mp.reduce_dtype = way == 1 ? FSDP_BF16 : FSDP_F32;
                root = blocks_build(&blocks);
                fsdp_module_set_requires_all_reduce(root, way != 2, true);
                options.R = R;
                options.accumulates = true;
                options.gradient_sync = FSDP_SYNC_EVERY;
                plan_it(&made, root, &options, true);
                plan_count_traffic(&made.plan, n_micro, &traffic);
                for (int g = 0; g < made.plan.n_groups; g++) {
                    const uint64_t bytes = made.plan.groups[g].grad_row_elems * size;

                    rows += bytes;
                    want += times * 2 * bytes * (uint64_t)(R - 1) / (uint64_t)R;
                }
                cr_assert(traffic.all_reduce.n_calls == 4 * times, "R %d W %d way %d", R, W, way);
                cr_assert(traffic.all_reduce.sent_bytes == want);
                cr_assert(traffic.reduce_scatter.sent_bytes == n_micro * (uint64_t)(W - 1) * rows);
            }
}

/* With a slice kept, forward gathers over W ranks and backward over k. */
Test(plan_traffic, a_slice_is_gathered_over_its_own_ranks)
{
    static const int shapes[][2] = { { 4, 2 }, { 6, 2 }, { 6, 3 }, { 8, 4 } };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const uint64_t W = (uint64_t)shapes[i][0], k = (uint64_t)shapes[i][1];
        struct plan_traffic traffic;
        uint64_t want = 0;

        plan_blocks((int)W, (struct blocks){ .n_blocks = 3,
                                             .reshard_blocks = FSDP_RESHARD_TO,
                                             .reshard_root = FSDP_RESHARD_TO,
                                             .reshard_size = (int)k });
        plan_count_traffic(&made.plan, 1, &traffic);
        for (int g = 0; g < made.plan.n_groups; g++) {
            const struct plan_group *group = &made.plan.groups[g];

            want += 4 * (W - 1) * group->row_elems + (k - 1) * group->slice_row_bytes;
        }
        cr_assert(traffic.all_gather.sent_bytes == want && traffic.all_gather.n_calls == 8, "W %d k %d",
                  (int)W, (int)k);
    }
}
