/*
 * test_fully_shard_init.py, of the layout: whatever the rows, the world, the dtype and the dimension, what is given to the
 * shards comes back whole, and every row is on exactly one rank, also where there are more ranks than rows.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "tests/unit/engine/world.h"

enum { MAX_ROWS = 9, MAX_W = 8, MAX_ELEMS = 24 * MAX_W };

struct shape {
    size_t rows, cols;
    int dim;
    int dtype;
    size_t held[MAX_W]; /* elements on each rank */
};

static int along(const char *name, int n_dims, const size_t *shape, void *user)
{
    (void)name;
    (void)shape;
    return n_dims > 1 ? ((struct shape *)user)->dim : 0;
}

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "a"), x);
}

/* Small whole numbers, which both dtypes hold exactly. */
static void round_trip(struct fsdp_context *context, void *user)
{
    struct shape *shape = user;
    struct fsdp_mixed_precision_policy policy = fsdp_mixed_precision_defaults();
    const struct fsdp_fully_shard_options options = { .mp_policy = &policy,
                                                      .shard_placement_fn = along,
                                                      .placement_user = shape };
    const struct fsdp_model_options model_options = { .batch = 1, .seq = 1, .input_features = shape->cols };
    const size_t n = shape->rows * shape->cols;
    struct fsdp_module *root = fsdp_module_create(forward, NULL);
    float values[MAX_ELEMS], back[MAX_ELEMS] = { 0 }, input[2 * MAX_W] = { 0 };
    struct fsdp_parameter_info info;
    struct fsdp_err err = { 0 };
    struct fsdp_model *model;
    const float *logits;

    policy.param_dtype = shape->dtype;
    fsdp_linear(root, "a", shape->cols, shape->rows, false);
    cr_assert(fsdp_fully_shard(root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_model_create(&model, context, root, &model_options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_model_parameter(model, 0, &info, &err) == FSDP_OK);
    cr_assert_eq(info.shard_dim, shape->dim);
    shape->held[fsdp_context_rank(context)] = info.n_rows * (shape->dim == 0 ? shape->cols : shape->rows);

    for (size_t i = 0; i < n; i++)
        values[i] = (float)(i % 127 + 1);
    cr_assert(fsdp_parameter_set(model, "a.weight", values, n, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_parameter_gather(model, "a.weight", FSDP_VALUE, back, n, &err) == FSDP_OK, "%s",
              err.message);
    cr_assert_eq(memcmp(values, back, n * sizeof *values), 0, "rows %zu, dimension %d", shape->rows,
                 shape->dim);

    /* And through the gather of a step, in the dtype of the policy: each unit vector picks a column. */
    cr_assert(fsdp_model_prepare_evaluation(model, 1, 1, &err) == FSDP_OK, "%s", err.message);
    for (size_t col = 0; col < shape->cols; col++) {
        memset(input, 0, sizeof input);
        input[col] = 1;
        cr_assert(fsdp_model_evaluate(model, input, NULL, &logits, NULL, &err) == FSDP_OK, "%s", err.message);
        for (size_t row = 0; row < shape->rows; row++)
            cr_assert(logits[row] == values[row * shape->cols + col],
                      "rows %zu, dimension %d: [%zu][%zu] is %g", shape->rows, shape->dim, row, col,
                      (double)logits[row]);
    }
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(parity_init, every_shape_round_trips_along_every_dimension, .timeout = 3000)
{
    static const int dtypes[] = { FSDP_DTYPE_NONE, FSDP_BF16 };

    for (int W = 1; W <= MAX_W; W++)
        for (size_t rows = 1; rows <= MAX_ROWS; rows++)
            for (int dim = 0; dim < 2; dim++)
                for (int d = 0; d < 2; d++) {
                    /* along dimension 1 the ranks must divide it evenly */
                    struct shape shape = {
                        .rows = rows, .cols = dim == 0 ? 2 : (size_t)W * 2, .dim = dim, .dtype = dtypes[d]
                    };
                    size_t held = 0;

                    world_run(W, round_trip, &shape);
                    for (int r = 0; r < W; r++)
                        held += shape.held[r];
                    cr_assert_eq(held, rows * shape.cols, "W %d, rows %zu, dimension %d", W, rows, dim);
                }
}

/* --- of three and four dimensions: no operation of ours has such a parameter, but a program's own may -------------- */

struct block {
    int n_dims, dim, dtype;
    size_t shape[FSDP_MAX_DIMS], n_elems;
    size_t held[MAX_W];
};

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

static void expect_round_trip(int W, int n_dims, int dim, size_t n, int dtype)
{
    struct block block = {
        .n_dims = n_dims, .dim = dim, .dtype = dtype, .shape = { 2, 1, 3, 2 }, .n_elems = 1
    };
    size_t held = 0;

    block.shape[dim] = n;
    for (int d = 0; d < n_dims; d++)
        block.n_elems *= block.shape[d];
    world_run(W, round_trip_block, &block);
    for (int r = 0; r < W; r++)
        held += block.held[r];
    cr_assert_eq(held, block.n_elems, "W %d, %zu along dimension %d of %d", W, n, dim, n_dims);
}

Test(parity_init, blocks_round_trip_along_each_of_up_to_four_dimensions, .timeout = 3000)
{
    static const int dtypes[] = { FSDP_DTYPE_NONE, FSDP_BF16 };

    for (int W = 1; W <= MAX_W; W++)
        for (int n_dims = 3; n_dims <= FSDP_MAX_DIMS; n_dims++)
            for (int dim = 0; dim < n_dims; dim++)
                for (int d = 0; d < 2; d++)
                    for (size_t each = 1; each <= 2; each++) /* rows of dimension 0 need not divide */
                        expect_round_trip(W, n_dims, dim, dim == 0 ? 4 * each - 1 : (size_t)W * each,
                                          dtypes[d]);
}
