/*
 * A plan that gathers in float8: what travels, byte for byte. The ranks agree once on the largest sizes,
 * before the first gather. A plan without float8 has nothing of it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/plan/traffic.h"
#include "tests/unit/plan/models.h"

TestSuite(plan_float8, .fini = planned_drop);

enum {
    W1 = 8 * 12,
    W1_BIAS = 12,
    W2 = 12 * 8,
    EMBEDDING = 11 * 8,
    OUTPUT = 11 * 8
}; /* elements; of (out, in) */

static struct fsdp_mixed_precision_policy float8(int param_dtype)
{
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();

    mp.float8_gather = true;
    mp.param_dtype = param_dtype;
    mp.reduce_dtype = FSDP_F32;
    return mp;
}

static size_t chunk(size_t rows, size_t elems, int W)
{
    return (rows + (size_t)W - 1) / (size_t)W * (elems / rows);
}

/*
 * A rank's row of a block, and of the root: what is no weight of a product in param_dtype, a byte for each
 * that is.
 */
static size_t block_row(int W, size_t size)
{
    const size_t bytes = chunk(12, W1, W) + chunk(8, W2, W) + chunk(12, W1_BIAS, W) * size;

    return (bytes + 15) / 16 * 16;
}

static size_t root_row(int W, size_t size)
{
    return (chunk(11, OUTPUT, W) + chunk(11, EMBEDDING, W) * size + 15) / 16 * 16;
}

Test(plan_float8, a_row_has_one_byte_for_each_weight_of_a_product_and_is_aligned)
{
    for (int W = 1; W <= 9; W++)
        for (int d = 0; d < 2; d++) {
            const size_t size = d == 0 ? 4 : 2;
            const struct fsdp_mixed_precision_policy mp = float8(d == 0 ? FSDP_DTYPE_NONE : FSDP_BF16);

            plan_blocks(W, (struct blocks){ .n_blocks = 2, .mp_policy = &mp });
            for (int g = 0; g < made.plan.n_groups; g++) {
                const struct plan_group *group = &made.plan.groups[g];

                cr_assert_eq(group->gather_row_bytes, g == 0 ? root_row(W, size) : block_row(W, size));
                cr_assert_eq(group->n_coded, g == 0 ? 1 : 2);
                cr_assert(group->gathers, "of one rank too: every world computes with the same weights");
                for (int i = 0; i < group->n_params; i++) {
                    const struct plan_param *param = &made.plan.params[group->params[i]];

                    cr_assert(param->coded >= 0 || param->gather_at % size == 0);
                }
            }
            for (int b = 0; b < made.plan.n_buffers; b++) {
                const struct plan_buffer *buffer = &made.plan.buffers[b];
                const struct plan_group *group =
                    &made.plan.groups[buffer->what == PLAN_GATHER_ROWS || buffer->what == PLAN_AMAX_LIST
                                          ? buffer->index
                                          : 0];

                cr_assert(buffer->what != PLAN_GATHER_ROWS ||
                          buffer->size_bytes == group->gather_row_bytes * (size_t)W);
                cr_assert(buffer->what != PLAN_AMAX_LIST ||
                          (buffer->size_bytes == (size_t)group->n_coded * 4 && buffer->step_long));
            }
        }
}

static void expect(struct blocks *blocks, int W, bool accumulates, bool training, const char *want)
{
    struct plan_options options = options_for(W);

    options.accumulates = accumulates;
    plan_it(&made, blocks_build(blocks), &options, training);
    expect_events(&made.plan, false, want);
}

Test(plan_float8, largest_sizes_are_agreed_on_before_the_first_gather_of_a_group)
{
    const struct fsdp_mixed_precision_policy mp = float8(FSDP_BF16);
    struct blocks blocks = { .n_blocks = 3, .mp_policy = &mp };
    struct blocks kept = {
        .n_blocks = 2, .mp_policy = &mp, .reshard_blocks = FSDP_RESHARD_FALSE, .keep_after_backward = true
    };
    struct blocks slices = {
        .n_blocks = 2, .mp_policy = &mp, .reshard_blocks = FSDP_RESHARD_TO, .reshard_size = 2
    };
    struct blocks twice = { .n_blocks = 1, .mp_policy = &mp, .visits = 2 };

    expect(&blocks, 2, false, true, " A(root) U(root) A0 U0 A1 U1 A2 U2 | U2 U1 PB2 U0 PB1 PB0 PB(root)");
    expect(&blocks, 2, false, false, " A(root) U(root) A0 U0 A1 U1 A2 U2 |");
    expect(&blocks, 1, false, true, " A(root) U(root) A0 U0 A1 U1 A2 U2 | U2 U1 U0");
    expect(&kept, 2, true, true, " A(root)1 U(root)1 A01 U01 A11 U11 | PB1 PB0 PB(root)");
    expect(&slices, 4, false, true, " A(root) U(root) A0 U0 A1 U1 | U1 U0 PB1 PB0 PB(root)");
    expect(&twice, 2, false, true, " A(root) U(root) A0 U0 U0 | U0 U0 PB0 PB(root)");
}

/* Apart from the agreement, the order of everything is what it is without; without, there is none. */
Test(plan_float8, else_the_order_of_events_is_as_without)
{
    const struct fsdp_mixed_precision_policy coded = float8(FSDP_BF16);
    struct fsdp_mixed_precision_policy plain = coded;
    struct blocks with = { .n_blocks = 4, .mp_policy = &coded },
                  without = { .n_blocks = 4, .mp_policy = &plain };
    struct planned a, b;

    plain.float8_gather = false;
    for (int W = 2; W <= 5; W++) {
        const struct plan_options options = options_for(W);
        int at = 0;

        plan_it(&a, blocks_build(&with), &options, true);
        plan_it(&b, blocks_build(&without), &options, true);
        for (int i = 0; i < a.plan.n_entries; i++) {
            if (a.plan.entries[i].kind == PLAN_AMAX) {
                cr_assert(a.plan.entries[i + 1].kind == PLAN_GATHER &&
                          a.plan.entries[i + 1].index == a.plan.entries[i].index);
                continue;
            }
            cr_assert(a.plan.entries[i].kind == b.plan.entries[at].kind &&
                      a.plan.entries[i].index == b.plan.entries[at].index &&
                      a.plan.entries[i].stream == b.plan.entries[at].stream);
            cr_assert(b.plan.entries[at].kind != PLAN_GATHER || b.plan.entries[at].gather.amax == -1);
            cr_assert(b.plan.entries[at].kind != PLAN_UNPACK || b.plan.entries[at].unpack.amax == -1);
            cr_assert(b.plan.entries[at].kind != PLAN_AMAX);
            at++;
        }
        cr_assert_eq(at, b.plan.n_entries);
        planned_fini(&a);
        planned_fini(&b);
    }
}

Test(plan_float8, traffic_is_rows_of_bytes_and_a_float_a_weight)
{
    for (int W = 1; W <= 9; W++)
        for (uint64_t n_micro = 1; n_micro <= 3; n_micro++) {
            const struct fsdp_mixed_precision_policy mp = float8(FSDP_BF16);
            struct blocks blocks = { .n_blocks = 3, .mp_policy = &mp };
            struct plan_options options = options_for(W);
            const uint64_t share = (uint64_t)(W - 1);
            struct plan_traffic traffic;

            options.accumulates = n_micro > 1;
            plan_it(&made, blocks_build(&blocks), &options, true);
            plan_count_traffic(&made.plan, n_micro, &traffic);

            cr_assert_eq(traffic.all_gather.sent_bytes,
                         n_micro * share * (2 * 3 * block_row(W, 2) + root_row(W, 2)), "W %d", W);
            cr_assert_eq(traffic.all_gather.n_calls, W > 1 ? n_micro * 7 : 0);
            cr_assert_eq(traffic.all_reduce.n_calls, W > 1 ? n_micro * 4 : 0);
            cr_assert_eq(traffic.all_reduce.sent_bytes,
                         3 * (n_micro * 2 * 8 * share / (uint64_t)W) + n_micro * 2 * 4 * share / (uint64_t)W);
        }
}

/* With slices of 1 / k backward gathers codes too, and fewer of them. */
Test(plan_float8, slices_are_codes)
{
    const struct fsdp_mixed_precision_policy mp = float8(FSDP_BF16);
    struct plan_traffic traffic;

    plan_blocks(4,
                (struct blocks){
                    .n_blocks = 2, .mp_policy = &mp, .reshard_blocks = FSDP_RESHARD_TO, .reshard_size = 2 });
    plan_count_traffic(&made.plan, 1, &traffic);

    cr_expect_eq(traffic.all_gather.sent_bytes,
                 2 * (3 * block_row(4, 2) + block_row(2, 2)) + 3 * root_row(4, 2));
    for (int b = 0; b < made.plan.n_buffers; b++)
        if (made.plan.buffers[b].what == PLAN_SLICE_ROW)
            cr_expect_eq(made.plan.buffers[b].size_bytes, block_row(2, 2));
}

/*
 * --- which weights
 * -------------------------------------------------------------------------------------------
 */

static struct fsdp_value *tied_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    x = fsdp_call(fsdp_module_child(self, "embedding"), x);
    x = fsdp_call(fsdp_module_child(self, "norm"), x);
    x = fsdp_call(fsdp_module_child(self, "square"), x);
    x = fsdp_call(fsdp_module_child(self, "conv"), x);
    return fsdp_call(fsdp_module_child(self, "output"), x);
}

static bool is_coded(const struct fsdp_module *root, const char *module, const char *name)
{
    return parameter_is_coded(module_parameter(fsdp_module_child(root, module), name));
}

static struct fsdp_module *tied_build(bool ignores)
{
    const struct fsdp_mixed_precision_policy mp = float8(FSDP_BF16);
    static const char *const conv[] = { "conv.weight" };
    const struct fsdp_fully_shard_options options = { .mp_policy = &mp,
                                                      .ignored_params = conv,
                                                      .n_ignored_params = ignores ? 1 : 0 };
    struct fsdp_module *root = fsdp_module_create(tied_forward, NULL);

    fsdp_embedding(root, "embedding", 11, 8);
    fsdp_layer_norm(root, "norm", 8, 1e-5f);
    fsdp_linear(root, "square", 8, 8, true);
    fsdp_conv1d(root, "conv", 8, 8, true);
    fsdp_linear(root, "output", 8, 11, false);
    cr_assert(fsdp_module_tie_parameter(fsdp_module_child(root, "output"), "weight",
                                        fsdp_module_child(root, "embedding"), "weight", NULL) == FSDP_OK);
    cr_assert(fsdp_fully_shard(root, &options, NULL) == FSDP_OK);
    return root;
}

Test(plan_float8, only_weights_that_products_alone_read_are_coded)
{
    struct fsdp_module *root = tied_build(false), *other = tied_build(true);

    cr_expect(is_coded(root, "square", "weight") && is_coded(root, "conv", "weight"));
    cr_expect(!is_coded(root, "square", "bias") && !is_coded(root, "norm", "weight"));
    cr_expect(!is_coded(root, "embedding", "weight") && !is_coded(root, "output", "weight"),
              "tied to an embedding");
    cr_expect(!is_coded(other, "conv", "weight"), "an ignored one does not travel");
    fsdp_module_destroy(root);
    fsdp_module_destroy(other);
}

/* An embedding tied to a linear's weight, the other way round, and two linears. */
Test(plan_float8, the_direction_of_a_tie_does_not_matter)
{
    struct fsdp_module *root = fsdp_module_create(NULL, NULL);
    struct fsdp_module *a = fsdp_linear(root, "a", 8, 11, false), *b = fsdp_linear(root, "b", 8, 11, false);
    struct fsdp_module *embedding = fsdp_embedding(root, "embedding", 11, 8);

    cr_assert(fsdp_module_tie_parameter(b, "weight", a, "weight", NULL) == FSDP_OK);
    cr_expect(module_parameter(a, "weight")->is_factor);
    cr_assert(fsdp_module_tie_parameter(embedding, "weight", a, "weight", NULL) == FSDP_OK);
    cr_expect(!module_parameter(a, "weight")->is_factor);
    fsdp_module_destroy(root);
}
