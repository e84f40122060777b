#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/numerics/rows.h"

static const double eps = (double)1e-5f;

/* y of one row, in double. */
static void oracle_row(const double *x, const float *weight, const float *bias, double *y, size_t cols,
                       double *mean, double *rstd)
{
    double mu = 0, variance = 0;

    for (size_t j = 0; j < cols; j++)
        mu += x[j] / (double)cols;
    for (size_t j = 0; j < cols; j++)
        variance += (x[j] - mu) * (x[j] - mu) / (double)cols;
    *mean = mu;
    *rstd = 1 / sqrt(variance + eps);
    for (size_t j = 0; j < cols; j++)
        y[j] = (x[j] - mu) * *rstd * (double)weight[j] + (double)bias[j];
}

struct layer {
    size_t rows, cols;
    float *x, *weight, *bias, *y, *mean, *rstd, *dy, *dx, *dweight, *dbias;
    void *scratch;
};

static void layer_init(struct layer *l, struct numerics *numerics, size_t rows, size_t cols, float shift)
{
    const size_t scratch_bytes = numerics->ops->layer_norm_scratch(numerics, rows, cols);

    *l = (struct layer){ .rows = rows, .cols = cols };
    l->x = random_floats(1, rows * cols, 2.0f);
    for (size_t i = 0; i < rows * cols; i++)
        l->x[i] += shift;
    l->weight = random_floats(2, cols, 1.0f);
    l->bias = random_floats(3, cols, 1.0f);
    l->dy = random_floats(4, rows * cols, 1.0f);
    l->y = random_floats(5, rows * cols, 1.0f);
    l->mean = random_floats(6, rows, 1.0f);
    l->rstd = random_floats(7, rows, 1.0f);
    l->dx = random_floats(8, rows * cols, 1.0f);
    l->dweight = random_floats(9, cols, 1.0f);
    l->dbias = random_floats(10, cols, 1.0f);
    l->scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
    memset(l->scratch, 0xFF, scratch_bytes); /* NaN: nothing may be read that was not written */
}

static void layer_fini(struct layer *l)
{
    free(l->x);
    free(l->weight);
    free(l->bias);
    free(l->dy);
    free(l->y);
    free(l->mean);
    free(l->rstd);
    free(l->dx);
    free(l->dweight);
    free(l->dbias);
    free(l->scratch);
}

static void forward(struct numerics *numerics, struct layer *l)
{
    numerics->ops->layer_norm(numerics, NULL, l->x, l->weight, l->bias, l->y, l->mean, l->rstd, l->rows,
                              l->cols, 1e-5f);
}

static void backward(struct numerics *numerics, struct layer *l, bool accumulate_dx, bool accumulate_params)
{
    numerics->ops->layer_norm_backward(numerics, NULL, l->dy, l->x, l->weight, l->mean, l->rstd, l->dx,
                                       accumulate_dx, l->dweight, l->dbias, accumulate_params, l->scratch,
                                       l->rows, l->cols);
}

static void check_forward(const struct row_case *row, const struct layer *l, double tolerance)
{
    double *x = malloc(l->cols * sizeof *x), *y = malloc(l->cols * sizeof *y);

    for (size_t i = 0; i < l->rows; i++) {
        double mean, rstd;

        for (size_t j = 0; j < l->cols; j++)
            x[j] = (double)l->x[i * l->cols + j];
        oracle_row(x, l->weight, l->bias, y, l->cols, &mean, &rstd);
        assert_near(row, "mean", l->mean + i, &mean, 1, 2e-7, 2e-7);
        assert_near(row, "rstd", l->rstd + i, &rstd, 1, tolerance, 0);
        for (size_t j = 0; j < l->cols; j++)
            assert_near(row, "y", l->y + i * l->cols + j, y + j, 1, 2e-7,
                        tolerance * fabs((double)l->weight[j]) * (1 + fabs((x[j] - mean) * rstd)));
    }
    free(x);
    free(y);
}

ROWS_TEST(numerics_layer_norm, forward_is_that_of_the_paper)
{
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t r = 0; r < n_odd_sizes; r++) {
        for (size_t c = 0; c < n_odd_sizes; c++) {
            struct layer l;

            layer_init(&l, &numerics, odd_sizes[r], odd_sizes[c], 0);
            forward(&numerics, &l);
            check_forward(row, &l, 1e-6); /* float32 mean, statistics and three products */
            layer_fini(&l);
        }
    }
    numerics_close(&numerics);
}

ROWS_TEST(numerics_layer_norm, a_mean_far_from_zero_does_not_cost_the_variance)
{
    struct numerics numerics;
    struct layer l;

    row_open(&numerics, row);
    layer_init(&l, &numerics, 4, 512, 1000.0f);

    forward(&numerics, &l);

    /* E[x^2] - E[x]^2 would lose 1e6 * 6e-8 / 4 = 1.5 %. The rounding of the mean to float32 alone is 3e-5 of
     * an x of 2. */
    check_forward(row, &l, 4e-5);
    layer_fini(&l);
    numerics_close(&numerics);
}

/* sum(dy * y) of one row, with element j moved by h. */
static double objective(const struct layer *l, size_t i, size_t moved, double h)
{
    double *x = calloc(l->cols, sizeof *x), *y = calloc(l->cols, sizeof *y), sum = 0, mean, rstd;

    for (size_t j = 0; j < l->cols; j++)
        x[j] = (double)l->x[i * l->cols + j] + (j == moved ? h : 0);
    oracle_row(x, l->weight, l->bias, y, l->cols, &mean, &rstd);
    for (size_t j = 0; j < l->cols; j++)
        sum += (double)l->dy[i * l->cols + j] * y[j];
    free(x);
    free(y);
    return sum;
}

/* The gradient with respect to x by central differences, in double: truncation and rounding are near 1e-9. */
static void check_dx(const struct row_case *row, const struct layer *l, const float *before)
{
    const double h = 1e-4;

    for (size_t i = 0; i < l->rows; i++) {
        const double scale = (double)l->rstd[i] * sqrt((double)l->cols);

        for (size_t j = 0; j < l->cols; j++) {
            const double slope = (objective(l, i, j, h) - objective(l, i, j, -h)) / (2 * h);
            const double want = before == NULL ? slope : slope + (double)before[i * l->cols + j];

            /* Errors are relative to the row's gradient before its projections are taken out. */
            assert_near(row, "dx", l->dx + i * l->cols + j, &want, 1, 2e-6, 1e-6 * scale + 1e-6);
        }
    }
}

/* Sums of terms of size 1: runs of 16 rows in float32, then double. A lost row would show as 1. */
static void check_params(const struct row_case *row, const struct layer *l, const float *dweight,
                         const float *dbias)
{
    for (size_t j = 0; j < l->cols; j++) {
        double weight = dweight == NULL ? 0 : (double)dweight[j], bias = dbias == NULL ? 0 : (double)dbias[j];

        for (size_t i = 0; i < l->rows; i++) {
            const double dy = (double)l->dy[i * l->cols + j];

            weight += dy * ((double)l->x[i * l->cols + j] - (double)l->mean[i]) * (double)l->rstd[i];
            bias += dy;
        }
        assert_near(row, "dweight", l->dweight + j, &weight, 1, 2e-7, 4e-7 * sqrt((double)l->rows));
        assert_near(row, "dbias", l->dbias + j, &bias, 1, 2e-7, 4e-7 * sqrt((double)l->rows));
    }
}

ROWS_TEST(numerics_layer_norm, backward_is_the_slope_of_forward)
{
    static const size_t sizes[][2] = { { 1, 3 },  { 2, 7 },   { 3, 17 }, { 5, 16 },  { 33, 5 },
                                       { 7, 64 }, { 65, 33 }, { 1, 65 }, { 200, 3 }, { 2, 130 } };
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct layer l;

        layer_init(&l, &numerics, sizes[s][0], sizes[s][1], 0);
        forward(&numerics, &l);
        backward(&numerics, &l, false, false);
        check_dx(row, &l, NULL);
        check_params(row, &l, NULL, NULL);
        layer_fini(&l);
    }
    numerics_close(&numerics);
}

ROWS_TEST(numerics_layer_norm, each_flag_accumulates_its_own_outputs)
{
    struct numerics numerics;

    row_open(&numerics, row);
    for (int flags = 0; flags < 4; flags++) {
        const bool into_dx = flags & 1, into_params = flags & 2;
        float *dx, *dweight, *dbias;
        struct layer l;

        layer_init(&l, &numerics, 70, 19, 0);
        dx = copy_floats(l.dx, 70 * 19);
        dweight = copy_floats(l.dweight, 19);
        dbias = copy_floats(l.dbias, 19);
        forward(&numerics, &l);
        backward(&numerics, &l, into_dx, into_params);
        check_dx(row, &l, into_dx ? dx : NULL);
        check_params(row, &l, into_params ? dweight : NULL, into_params ? dbias : NULL);
        free(dx);
        free(dweight);
        free(dbias);
        layer_fini(&l);
    }
    numerics_close(&numerics);
}

ROWS_TEST(numerics_layer_norm, many_rows_sum_their_parameter_gradients_exactly)
{
    struct numerics numerics;
    struct layer l;

    row_open(&numerics, row);
    layer_init(&l, &numerics, 5000, 65, 0.5f);

    forward(&numerics, &l);
    backward(&numerics, &l, false, false);

    check_params(row, &l, NULL, NULL);
    layer_fini(&l);
    numerics_close(&numerics);
}

/* A constant row has no variance: eps alone keeps the result finite. */
ROWS_TEST(numerics_layer_norm, constant_rows_stay_finite)
{
    struct numerics numerics;
    struct layer l;

    row_open(&numerics, row);
    layer_init(&l, &numerics, 2, 100, 0);
    for (size_t i = 0; i < 200; i++)
        l.x[i] = 3.7f;

    forward(&numerics, &l);
    backward(&numerics, &l, false, false);

    check_forward(row, &l, 1e-4); /* the mean's rounding, 1e-7, times an rstd of 316 */
    for (size_t i = 0; i < 200; i++)
        cr_assert(isfinite(l.y[i]) && isfinite(l.dx[i]));
    layer_fini(&l);
    numerics_close(&numerics);
}

/* --- with the sum before it --- */

/* In place or beside, dropped or not: the bits of the operations one after the other. */
FAST_ROWS_TEST(numerics_layer_norm, the_sum_before_it_in_one_pass_changes_no_bit)
{
    static const struct dropout drops = { .p = 0.3f, .key = 5, .first_row = 77 };
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t c = 0; c < n_odd_sizes; c++)
        for (int way = 0; way < 4; way++) {
            const size_t rows = 65, cols = odd_sizes[c], n = rows * cols;
            const struct dropout *dropout = way % 2 == 0 ? NULL : &drops;
            float *a = random_floats(1, n, 1.0f), *b = random_floats(2, n, 1.0f), *x = copy_floats(a, n),
                  *sum = copy_floats(a, n);
            struct layer want, got;
            struct numerics_add_norm both;

            layer_init(&want, &numerics, rows, cols, 0);
            layer_init(&got, &numerics, rows, cols, 0);
            if (dropout != NULL)
                numerics.ops->dropout(&numerics, NULL, b, sum, rows, cols, dropout, true);
            else
                numerics.ops->add(&numerics, NULL, a, b, sum, n);
            numerics.ops->layer_norm(&numerics, NULL, sum, want.weight, want.bias, want.y, want.mean,
                                     want.rstd, rows, cols, 1e-5f);
            both = (struct numerics_add_norm){ .a = way < 2 ? a : x,
                                               .b = b,
                                               .dropout = dropout,
                                               .x = x,
                                               .y = got.y,
                                               .weight = got.weight,
                                               .bias = got.bias,
                                               .mean = got.mean,
                                               .rstd = got.rstd,
                                               .rows = rows,
                                               .cols = cols,
                                               .eps = 1e-5f };

            numerics.ops->add_layer_norm(&numerics, NULL, FSDP_F32, &both);

            cr_assert(memcmp(x, sum, n * sizeof *x) == 0, "sum, way %d, %zu columns", way, cols);
            cr_assert(memcmp(got.y, want.y, n * sizeof *x) == 0, "norm, way %d, %zu columns", way, cols);
            cr_assert(memcmp(got.mean, want.mean, rows * sizeof *x) == 0);
            cr_assert(memcmp(got.rstd, want.rstd, rows * sizeof *x) == 0);
            layer_fini(&want);
            layer_fini(&got);
            free(a);
            free(b);
            free(x);
            free(sum);
        }
    numerics_close(&numerics);
}
