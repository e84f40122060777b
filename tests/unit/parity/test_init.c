/*
 * test_fully_shard_init.py, of the layout: whatever the rows, the world, the dtype and the dimension, what is given to the
 * shards comes back whole, and every row is on exactly one rank, also where there are more ranks than rows.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/world.h"

enum { MAX_ROWS = 9, MAX_W = 8, MAX_ELEMS = MAX_ROWS * 2 * MAX_W };

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

Test(parity_init, every_shape_round_trips_along_every_dimension, .timeout = 300)
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
