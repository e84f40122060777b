/*
 * test_fully_shard_init.py, its part about the layout. For all rows, worlds, dtypes and dimensions, a tensor
 * that was sharded comes back whole. Every row is on exactly one rank, also if there are more ranks than
 * rows.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "tests/unit/engine/world.h"

enum { MAX_ROWS = 9, MAX_W = 8, MAX_ELEMS = 24 * MAX_W };

/*
 * A parameter of any number of dimensions: no operation of ours has more than two, but a program's own may.
 */
struct block {
    int n_dims, dim, dtype;
    size_t shape[FSDP_MAX_DIMS], n_elems;
    size_t held[MAX_W];
};

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "a"), x);
}

static int where_told(const char *name, int n_dims, const size_t *shape, void *user)
{
    (void)n_dims;
    (void)shape;
    return strcmp(name, "block") == 0 ? ((struct block *)user)->dim : 0;
}

static struct fsdp_module *build_with(const struct block *block)
{
    const struct fsdp_mixed_precision_policy policy = { block->dtype, FSDP_DTYPE_NONE, FSDP_DTYPE_NONE,
                                                        true,         false,           false };
    const struct fsdp_fully_shard_options options = { .mp_policy = &policy,
                                                      .shard_placement_fn = where_told,
                                                      .placement_user = (void *)(uintptr_t)block };
    struct fsdp_module *root = fsdp_module_create(forward, NULL);
    struct fsdp_err err = { 0 };

    fsdp_linear(root, "a", 2, 3, false);
    cr_assert(fsdp_module_add_parameter(root, "block", block->n_dims, block->shape, FSDP_INIT_ZEROS, &err) ==
                  FSDP_OK,
              "%s", err.message);
    cr_assert(fsdp_fully_shard(root, &options, &err) == FSDP_OK, "%s", err.message);
    return root;
}

static size_t elems_held(struct fsdp_model *model, const struct block *block)
{
    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;

        cr_assert(fsdp_model_parameter(model, i, &info, NULL) == FSDP_OK);
        if (strcmp(info.name, "block") != 0)
            continue;
        cr_assert_eq(info.shard_dim, block->dim);
        return info.n_rows * (block->n_elems / block->shape[block->dim]);
    }
    cr_assert_fail("the model has no such parameter");
    return 0;
}

/* As gathered for a step, in the dtype of the policy. */
static void expect_unsharded(struct fsdp_model *model, struct fsdp_module *root, const float *values,
                             size_t n)
{
    enum fsdp_dtype dtype;
    struct fsdp_err err = { 0 };
    const void *data;

    cr_assert(fsdp_module_unshard(model, root, false, NULL, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_parameter_unsharded(model, "block", &data, &dtype, &err) == FSDP_OK, "%s", err.message);
    for (size_t i = 0; i < n; i++) {
        const float got =
            dtype == FSDP_BF16 ? bf16_to_f32(((const uint16_t *)data)[i]) : ((const float *)data)[i];

        cr_assert(got == values[i], "element %zu is %g, not %g", i, (double)got, (double)values[i]);
    }
}

static void round_trip_block(struct fsdp_context *context, void *user)
{
    struct block *block = user;
    const struct fsdp_model_options options = { .batch = 1, .seq = 1, .input_features = 2 };
    struct fsdp_module *root = build_with(block);
    float values[MAX_ELEMS], back[MAX_ELEMS] = { 0 };
    struct fsdp_err err = { 0 };
    struct fsdp_model *model;

    cr_assert(block->n_elems <= MAX_ELEMS);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    block->held[fsdp_context_rank(context)] = elems_held(model, block);
    for (size_t i = 0; i < block->n_elems; i++)
        values[i] = (float)(i % 127 + 1);
    cr_assert(fsdp_parameter_set(model, "block", values, block->n_elems, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_parameter_gather(model, "block", FSDP_VALUE, back, block->n_elems, &err) == FSDP_OK, "%s",
              err.message);
    cr_assert(memcmp(values, back, block->n_elems * sizeof *values) == 0, "dimension %d of %d", block->dim,
              block->n_dims);
    expect_unsharded(model, root, values, block->n_elems);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

/* What is given to the shards comes back whole, and every row is on exactly one rank. */
static void expect_round_trip(int W, int n_dims, const size_t *shape, int dim)
{
    static const int dtypes[] = { FSDP_DTYPE_NONE, FSDP_BF16 };

    for (int t = 0; t < 2; t++) {
        struct block block = { .n_dims = n_dims, .dim = dim, .dtype = dtypes[t], .n_elems = 1 };
        size_t held = 0;

        for (int d = 0; d < n_dims; d++)
            block.n_elems *= block.shape[d] = shape[d];
        world_run(W, round_trip_block, &block);
        for (int r = 0; r < W; r++)
            held += block.held[r];
        cr_assert_eq(held, block.n_elems, "W %d, %zu along dimension %d of %d", W, shape[dim], dim, n_dims);
    }
}

/* The ranks must divide a dimension other than the first evenly. */
Test(parity_init, every_shape_round_trips_along_every_dimension, .timeout = 3000)
{
    for (int W = 1; W <= MAX_W; W++)
        for (size_t rows = 1; rows <= MAX_ROWS; rows++)
            for (int dim = 0; dim < 2; dim++)
                expect_round_trip(W, 2, (size_t[]){ rows, dim == 0 ? 2 : 2 * (size_t)W }, dim);
}

Test(parity_init, blocks_round_trip_along_each_of_up_to_four_dimensions, .timeout = 3000)
{
    for (int W = 1; W <= MAX_W; W++)
        for (int n_dims = 3; n_dims <= FSDP_MAX_DIMS; n_dims++)
            for (int dim = 0; dim < n_dims; dim++)
                for (size_t each = 1; each <= 2; each++) {
                    size_t shape[] = { 2, 1, 3, 2 };

                    shape[dim] = dim == 0 ? 4 * each - 1 : (size_t)W * each;
                    expect_round_trip(W, n_dims, shape, dim);
                }
}
