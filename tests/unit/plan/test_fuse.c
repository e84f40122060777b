/* Two forwards that are one pass: where they are neighbours, and what that means for their buffers. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/plan/models.h"

/* Blocks whose sum can be one pass with what the next block begins with. */
static void plan_fusing(struct planned *planned, int W)
{
    static struct blocks blocks = { .n_blocks = 4 };
    const struct plan_options options = options_for(W);
    const struct graph_input input = { .dtype = FSDP_I32, .batch = 2, .seq = 3 };

    planned->root = blocks_build(&blocks);
    cr_assert(graph_record(&planned->graph, planned->root, &input, true, NULL) == FSDP_OK);
    for (size_t i = 0; i < planned->graph.n_ops; i++) {
        struct graph_op *op = planned->graph.ops[i];

        op->fuses = strcmp(op->kind->name, "add") == 0;
        op->saved_bytes[0] = 40;
        op->forward_scratch = 300;
    }
    cr_assert(plan_make(&planned->plan, &planned->graph, planned->root, &options, NULL) == FSDP_OK);
}

static bool overlap(const struct plan *plan, int a, int b)
{
    const struct plan_buffer *x = &plan->buffers[a < 0 ? 0 : a], *y = &plan->buffers[b < 0 ? 0 : b];

    return a >= 0 && b >= 0 && x->offset < y->offset + y->size_bytes && y->offset < x->offset + x->size_bytes;
}

Test(plan_fuse, neighbours_are_one_pass_and_the_second_writes_nothing_that_the_first_reads)
{
    struct planned planned;
    int n_fused = 0;

    plan_fusing(&planned, 1);
    for (int i = 0; i + 1 < planned.plan.n_entries; i++) {
        const struct plan_entry *e = &planned.plan.entries[i], *next = e + 1;

        cr_expect_eq(e->with_next, next->with_before);
        if (!e->with_next)
            continue;
        n_fused++;
        cr_expect_eq(next->index, e->index + 1);
        cr_expect_eq(next->input[0], e->output);
        for (int in = 0; in < 2; in++) {
            cr_expect(!overlap(&planned.plan, next->output, e->input[in]), "entry %d, input %d", i, in);
            cr_expect(!overlap(&planned.plan, next->saved[0], e->input[in]), "entry %d, input %d", i, in);
            cr_expect(!overlap(&planned.plan, next->scratch, e->input[in]), "entry %d, input %d", i, in);
        }
        cr_expect(!overlap(&planned.plan, next->output, e->output));
    }
    cr_expect_eq(n_fused, 4, "three into the next block, one into the output: %d", n_fused);
    planned_fini(&planned);
}

/* What has to be gathered in between keeps them apart. */
Test(plan_fuse, what_stands_between_two_keeps_them_apart)
{
    struct planned planned;
    int n_fused = 0;

    plan_fusing(&planned, 2);
    for (int i = 0; i < planned.plan.n_entries; i++)
        n_fused += planned.plan.entries[i].with_next;
    cr_expect_lt(n_fused, 4);
    planned_fini(&planned);
}
