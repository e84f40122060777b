/* Two operations that are one pass: where they are neighbours, and what that means for their buffers. */
#include <criterion/criterion.h>
#include <string.h>

#include "shard_runtime/nn/nn.h"
#include "shard_runtime/numerics/cuda_plan.h"
#include "tests/unit/plan/models.h"

TestSuite(plan_fuse, .fini = planned_drop);

/* Blocks whose sum can be one pass with what the next block begins with. */
static void plan_fusing(struct planned *p, int W)
{
    static struct blocks blocks = { .n_blocks = 4 };
    const struct plan_options options = options_for(W);
    const struct graph_input input = { .dtype = FSDP_I32, .batch = 2, .seq = 3 };

    p->root = blocks_build(&blocks);
    cr_assert(graph_record(&p->graph, p->root, &input, true, NULL) == FSDP_OK);
    for (size_t i = 0; i < p->graph.n_ops; i++) {
        struct graph_op *op = p->graph.ops[i];

        op->fuses = strcmp(op->kind->name, "add") == 0;
        op->saved_bytes[0] = 40;
        op->forward_scratch = 300;
    }
    cr_assert(plan_make(&p->plan, &p->graph, p->root, &options, NULL) == FSDP_OK);
}

static bool overlap(const struct plan *plan, int a, int b)
{
    const struct plan_buffer *x = &plan->buffers[a < 0 ? 0 : a], *y = &plan->buffers[b < 0 ? 0 : b];

    return a >= 0 && b >= 0 && x->offset < y->offset + y->size_bytes && y->offset < x->offset + x->size_bytes;
}

Test(plan_fuse, neighbours_are_one_pass_and_the_second_writes_nothing_that_the_first_reads)
{
    int n_fused = 0;

    plan_fusing(&made, 1);
    for (int i = 0; i + 1 < made.plan.n_entries; i++) {
        const struct plan_entry *e = &made.plan.entries[i], *next = e + 1;

        const bool first = plan_is_operation(e) && e->op.with_next;

        cr_expect_eq(first, plan_is_operation(next) && next->op.with_before);
        if (!first)
            continue;
        n_fused++;
        cr_expect_eq(next->index, e->index + 1);
        cr_expect_eq(next->op.input[0], e->op.output);
        for (int in = 0; in < 2; in++) {
            cr_expect(!overlap(&made.plan, next->op.output, e->op.input[in]), "entry %d, input %d", i, in);
            cr_expect(!overlap(&made.plan, next->op.saved[0], e->op.input[in]), "entry %d, input %d", i, in);
            cr_expect(!overlap(&made.plan, next->op.scratch, e->op.input[in]), "entry %d, input %d", i, in);
        }
        cr_expect(!overlap(&made.plan, next->op.output, e->op.output));
    }
    cr_expect_eq(n_fused, 4, "three into the next block, one into the output: %d", n_fused);
}

/* What has to be gathered in between keeps them apart. */
Test(plan_fuse, what_stands_between_two_keeps_them_apart)
{
    int n_fused = 0;

    plan_fusing(&made, 2);
    for (int i = 0; i < made.plan.n_entries; i++)
        n_fused += plan_is_operation(&made.plan.entries[i]) && made.plan.entries[i].op.with_next;
    cr_expect_lt(n_fused, 4);
}

enum { FEATURES = 16, HIDDEN = 64 };

/* x + c_proj(gelu(c_fc(norm(x)))), as GPT-2's: the norm is made again in backward, in front of c_fc's. */
static struct fsdp_value *mlp(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    struct fsdp_value *h = fsdp_call(fsdp_module_child(self, "norm"), x);

    h = fsdp_gelu_tanh(fsdp_call(fsdp_module_child(self, "c_fc"), h));
    if (*(const bool *)user) /* twice used: not the linear's alone */
        h = fsdp_add(h, h);
    return fsdp_add(x, fsdp_call(fsdp_module_child(self, "c_proj"), h));
}

static struct fsdp_value *of_mlps(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    struct fsdp_value *x = fsdp_call(fsdp_module_child(self, "embedding"), tokens);

    (void)user;
    for (int i = 0; i < 2; i++)
        x = fsdp_call(fsdp_module_child(self, i == 0 ? "a" : "b"), x);
    return fsdp_call(fsdp_module_child(self, "output"), x);
}

static void plan_mlps(struct planned *p, const struct numerics_ops *row, int W, const bool *twice,
                      bool frozen)
{
    struct plan_options options = options_for(W);
    const struct graph_input input = { .dtype = FSDP_I32, .batch = 2, .seq = 24 };
    const struct numerics_config config = { .threads = 1, .name = "plain", .row = row };
    struct fsdp_module *root = p->root = fsdp_module_create(of_mlps, NULL);
    struct numerics numerics;
    struct nn_kernels kernels;

    options.keeps_cheap = false;
    fsdp_embedding(root, "embedding", 10, FEATURES);
    for (int i = 0; i < 2; i++) {
        struct fsdp_module *unit = fsdp_module_add(root, i == 0 ? "a" : "b", mlp, (void *)(uintptr_t)twice);

        fsdp_layer_norm(unit, "norm", FEATURES, 1e-5f);
        fsdp_conv1d(unit, "c_fc", FEATURES, HIDDEN, true);
        fsdp_conv1d(unit, "c_proj", HIDDEN, FEATURES, true);
        if (frozen)
            cr_assert(fsdp_parameter_set_requires_grad(fsdp_module_child(unit, "c_fc"), "bias", false,
                                                       NULL) == FSDP_OK);
        cr_assert(fsdp_fully_shard(unit, NULL, NULL) == FSDP_OK);
    }
    fsdp_linear(root, "output", FEATURES, 10, false);
    cr_assert(fsdp_fully_shard(root, NULL, NULL) == FSDP_OK);
    cr_assert(numerics_open(&numerics, &config, NULL) == FSDP_OK);
    nn_kernels_init(&kernels, &numerics);
    cr_assert(graph_record(&p->graph, root, &input, true, NULL) == FSDP_OK);
    cr_assert(nn_prepare(&kernels, &p->graph, NULL) == FSDP_OK);
    cr_assert(plan_make(&p->plan, &p->graph, root, &options, NULL) == FSDP_OK);
    nn_kernels_fini(&kernels);
    numerics_close(&numerics);
}

static int count_fused_backwards(const struct plan *plan, int *n_biases)
{
    int n = 0;

    *n_biases = 0;
    for (int i = 0; i < plan->n_entries; i++) {
        if (plan->entries[i].kind != PLAN_BACKWARD)
            continue;
        n += plan->entries[i].op.with_next;
        *n_biases += plan->entries[i].back.bias_before;
    }
    return n;
}

Test(plan_fuse, a_way_back_through_a_gelu_is_one_pass_that_needs_no_more_memory)
{
    static const bool once = false;

    for (int W = 1; W <= 4; W++) {
        struct planned with = { 0 }, without = { 0 };
        int n_biases;

        plan_mlps(&with, &numerics_cuda_plan_ops, W, &once, false);
        plan_mlps(&without, NULL, W, &once, false);
        cr_expect_eq(count_fused_backwards(&without.plan, &n_biases), 0);
        cr_expect_eq(count_fused_backwards(&with.plan, &n_biases), 2);
        cr_expect_eq(n_biases, 2);
        for (int i = 0; i < with.plan.n_entries; i++) {
            const struct plan *plan = &with.plan;
            const struct plan_entry *e = &plan->entries[i], *next = e + 1;
            int bias;

            if (e->kind != PLAN_BACKWARD || !e->op.with_next)
                continue;
            cr_assert(strcmp(plan->graph->ops[next->index]->kind->name, "gelu_tanh") == 0);
            cr_expect_eq(plan->buffers[next->back.d_input[0]].storage,
                         plan->buffers[e->back.d_input[0]].storage,
                         "what is between the two has no memory of its own");
            cr_expect(!overlap(plan, next->back.d_input[0], e->back.d_output));
            cr_expect(!overlap(plan, next->back.d_input[0], e->op.input[0]));
            cr_expect(!overlap(plan, next->back.d_input[0], next->op.input[0]),
                      "what went into the GELU is still read");
            cr_assert_gt(e->back.bias_entry, i);
            cr_expect(plan->entries[e->back.bias_entry].back.bias_before);
            cr_expect_eq(plan->entries[e->back.bias_entry].index, e->index - 2);
            bias = plan->entries[e->back.bias_entry].back.d_param[1];
            cr_expect(bias < 0 || plan->buffers[bias].first == i, "the bias's gradient is written here");
            for (int b = 0; b < plan->n_buffers && bias >= 0; b++)
                cr_expect(plan->buffers[b].storage == plan->buffers[bias].storage ||
                              plan->buffers[b].last < i || plan->buffers[b].first > e->back.bias_entry ||
                              !overlap(plan, b, bias),
                          "buffer %d lies where the bias's gradient waits", b);
        }
        planned_fini(&with);
        planned_fini(&without);
    }
}

Test(plan_fuse, it_is_not_where_another_gradient_is_added_or_the_bias_does_not_learn)
{
    static const bool once = false, twice = true;
    int n_biases;

    plan_mlps(&made, &numerics_cuda_plan_ops, 2, &twice, false);
    cr_expect_eq(count_fused_backwards(&made.plan, &n_biases), 0);
    cr_expect_eq(n_biases, 0);
    planned_fini(&made);
    plan_mlps(&made, &numerics_cuda_plan_ops, 2, &once, true);
    cr_expect_eq(count_fused_backwards(&made.plan, &n_biases), 2);
    cr_expect_eq(n_biases, 0);
}
