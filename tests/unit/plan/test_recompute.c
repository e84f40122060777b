/*
 * Activation checkpointing in the program: what runs again, when, and what that leaves in memory.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/activation_checkpoint.h>

#include "tests/unit/plan/models.h"

TestSuite(recompute, .fini = planned_drop);

/* "w1 gelu | w1 gelu": of each block, the last first, the operations that run again. */
static void again(const struct plan *plan, char *out, size_t size)
{
    size_t n = 0;
    int visit = -1;

    out[0] = '\0';
    for (int i = 0; i < plan->n_entries; i++) {
        const struct plan_entry *e = &plan->entries[i];
        const struct graph_op *op = plan_runs_again(e) ? plan->graph->ops[e->index] : NULL;

        if (op == NULL)
            continue;
        n += (size_t)snprintf(out + n, size - n, "%s%s",
                              n == 0               ? ""
                              : op->visit == visit ? " "
                                                   : " | ",
                              strrchr(op->name, '.') + 1);
        visit = op->visit;
    }
}

static void plan_wrapped(struct planned *p, struct blocks *blocks, enum fsdp_activation_checkpoint mode,
                         int W)
{
    struct fsdp_module *root = blocks_build(blocks);
    struct fsdp_module *layers = fsdp_module_child(root, "layers");
    const struct plan_options options = options_for(W);

    for (size_t i = 0; i < fsdp_module_child_count(layers); i++)
        fsdp_checkpoint_wrapper(fsdp_module_child_at(layers, i), mode);
    plan_it(p, root, &options, true);
}

static void expect_again(enum fsdp_activation_checkpoint mode, int visits, const char *want)
{
    struct blocks blocks = { .n_blocks = 2, .visits = visits };
    char got[200];

    plan_wrapped(&made, &blocks, mode, 2);
    again(&made.plan, got, sizeof got);
    cr_expect_str_eq(got, want, "%s", got);
}

Test(recompute, only_what_backward_reads_runs_again)
{
    /*
     * x + w2(gelu(w1(x))): nothing reads what w2 and the sum gave. But models.c lets every third operation
     * save something for its backward, so those run for that. Here it is w2 of block 0; in the second visits
     * it is w2 of both blocks and one sum.
     */
    expect_again(FSDP_CHECKPOINT_NONE, 1, "");
    expect_again(FSDP_CHECKPOINT_FULL, 1, "w1 gelu | w1 gelu w2");
    expect_again(FSDP_CHECKPOINT_SELECTIVE, 1, "gelu | gelu");
    expect_again(FSDP_CHECKPOINT_FULL, 2, "w1#1 gelu#1 w2#1 | w1#1 gelu#1 w2#1 add#1 | w1 gelu | w1 gelu w2");
}

/*
 * In the program: the block's parameters are whole, all of it runs again, then its backward, nothing in
 * between.
 */
Test(recompute, a_block_runs_again_right_before_its_backward)
{
    struct blocks blocks = { .n_blocks = 3 };
    int first_backward[4] = { -1, -1, -1, -1 }, last_again[4] = { -1, -1, -1, -1 };

    plan_wrapped(&made, &blocks, FSDP_CHECKPOINT_FULL, 2);
    for (int i = 0; i < made.plan.n_entries; i++) {
        const struct plan_entry *e = &made.plan.entries[i];
        const int visit = e->index >= 0 && (e->kind == PLAN_FORWARD || e->kind == PLAN_BACKWARD)
                              ? made.graph.ops[e->index]->visit
                              : 0;

        if (e->kind == PLAN_BACKWARD && first_backward[visit] < 0)
            first_backward[visit] = i;
        if (plan_runs_again(e))
            last_again[visit] = i;
        for (int p = 0; plan_runs_again(e) && p < made.graph.ops[e->index]->n_params; p++)
            cr_expect(e->op.params[p] >= 0, "its parameters are gathered");
    }
    for (int visit = 1; visit < 4; visit++)
        cr_expect(last_again[visit] > 0 && last_again[visit] < first_backward[visit]);
    cr_expect(last_again[2] > first_backward[3], "not before the block behind it is done");
}

/* What is kept from forward to backward grows by one value a block, whatever the block computes. */
Test(recompute, a_block_more_costs_its_input_alone)
{
    const size_t value = sizeof(float) * 2 * 3 * 8; /* (batch, seq, features) of the residual stream */
    size_t activations[2][3];

    for (int mode = 0; mode < 3; mode++)
        for (int more = 0; more < 2; more++) {
            struct blocks blocks = { .n_blocks = 8 + more };

            plan_wrapped(&made, &blocks, (enum fsdp_activation_checkpoint)mode, 1);
            activations[more][mode] = made.plan.class_bytes[PLAN_ACTIVATIONS];
        }
    cr_expect_eq(activations[1][FSDP_CHECKPOINT_FULL] - activations[0][FSDP_CHECKPOINT_FULL], value);
    cr_expect(activations[1][FSDP_CHECKPOINT_SELECTIVE] - activations[0][FSDP_CHECKPOINT_SELECTIVE] > value);
    cr_expect(activations[1][FSDP_CHECKPOINT_NONE] - activations[0][FSDP_CHECKPOINT_NONE] >
              activations[1][FSDP_CHECKPOINT_SELECTIVE] - activations[0][FSDP_CHECKPOINT_SELECTIVE]);
}

Test(recompute, without_backward_nothing_runs_again)
{
    struct blocks blocks = { .n_blocks = 2 };
    struct fsdp_module *root = blocks_build(&blocks);
    const struct plan_options options = options_for(2);
    char got[200];

    fsdp_checkpoint_wrapper(root, FSDP_CHECKPOINT_FULL);
    plan_it(&made, root, &options, false);
    again(&made.plan, got, sizeof got);
    cr_expect_str_eq(got, "");
}

/* The outermost region counts; the units inside it are gathered again for it, and reduced as ever. */
Test(recompute, a_region_may_hold_units_and_other_regions)
{
    struct blocks blocks = { .n_blocks = 2 };
    struct fsdp_module *root = blocks_build(&blocks);
    struct fsdp_module *layers = fsdp_module_child(root, "layers");
    const struct plan_options options = options_for(2);
    char got[200];

    fsdp_checkpoint_wrapper(root, FSDP_CHECKPOINT_FULL);
    fsdp_checkpoint_wrapper(fsdp_module_child_at(layers, 0), FSDP_CHECKPOINT_SELECTIVE);
    plan_it(&made, root, &options, true);
    cr_expect_eq(made.graph.n_regions, 1);
    cr_expect_eq(count_entries(&made.plan, PLAN_REDUCE), 3);
    got[0] = '\0';
    for (int i = 0; i < made.plan.n_entries; i++)
        if (plan_runs_again(&made.plan.entries[i])) {
            strcat(got, made.graph.ops[made.plan.entries[i].index]->name);
            strcat(got, " ");
        }
    cr_expect_str_eq(got,
                     "embedding layers.0.w1 layers.0.gelu layers.0.w2 layers.0.add layers.1.w1 layers.1.gelu "
                     "layers.1.w2 layers.1.add output ");
}

static void plan_cheap(struct planned *p, struct blocks *blocks, enum fsdp_activation_checkpoint mode,
                       bool keeps, int W)
{
    struct fsdp_module *root = blocks_build(blocks);
    struct plan_options options = options_for(W);

    options.keeps_cheap = keeps;
    fsdp_checkpoint_wrapper(fsdp_module_child_at(fsdp_module_child(root, "layers"), 0), mode);
    plan_it(p, root, &options, true);
}

Test(recompute, what_is_cheap_runs_again_right_before_the_backward_that_reads_it)
{
    struct blocks blocks = { .n_blocks = 3 };
    char got[200];

    plan_cheap(&made, &blocks, FSDP_CHECKPOINT_NONE, false, 2);
    again(&made.plan, got, sizeof got);
    cr_expect_str_eq(got, "gelu | gelu | gelu");
    for (int i = 0; i + 1 < made.plan.n_entries; i++) {
        const struct plan_entry *e = &made.plan.entries[i], *next = e + 1;

        if (!plan_runs_again(e))
            continue;
        cr_expect_eq(next->kind, PLAN_BACKWARD);
        cr_expect_eq(next->op.input[0], e->op.output, "%s reads what was made for it",
                     made.graph.ops[next->index]->name);
    }
}

/*
 * A block that is checkpointed as a whole makes its own GELU again, once; one of two visits as well as the
 * other.
 */
Test(recompute, what_is_cheap_runs_again_once)
{
    struct blocks twice = { .n_blocks = 2, .visits = 2 }, wrapped = { .n_blocks = 2 };
    char got[200];

    plan_cheap(&made, &wrapped, FSDP_CHECKPOINT_FULL, false, 2);
    again(&made.plan, got, sizeof got);
    cr_expect_str_eq(got, "gelu | w1 gelu w2");
    plan_cheap(&made, &twice, FSDP_CHECKPOINT_NONE, false, 2);
    again(&made.plan, got, sizeof got);
    cr_expect_str_eq(got, "gelu#1 | gelu#1 | gelu | gelu");
}

/* What GELU gave is twice as wide as the residual stream here: each block keeps that much less. */
Test(recompute, a_block_more_costs_less_where_what_is_cheap_is_not_kept)
{
    size_t activations[2][2];

    for (int keeps = 0; keeps < 2; keeps++)
        for (int more = 0; more < 2; more++) {
            struct blocks blocks = { .n_blocks = 8 + more };

            plan_cheap(&made, &blocks, FSDP_CHECKPOINT_NONE, keeps != 0, 1);
            activations[more][keeps] = made.plan.class_bytes[PLAN_ACTIVATIONS];
        }
    cr_expect(activations[1][0] - activations[0][0] < activations[1][1] - activations[0][1], "%zu and %zu",
              activations[1][0] - activations[0][0], activations[1][1] - activations[0][1]);
}
