/* LayerNorm, and RMSNorm, which is the same operation without a mean and a bias, against doubles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "tests/unit/numerics/rows.h"

static const double eps = (double)1e-5f;

/* One call in both dtypes: the numbers of `narrow` are those of the floats, where bfloat16 is asked for. */
struct layer {
    size_t rows, cols, n;
    bool rms;
    struct numerics_norm forward;
    struct numerics_norm_backward backward;
};

static struct layer layer_of(struct numerics *numerics, bool rms, size_t rows, size_t cols, float shift)
{
    const size_t scratch_bytes = numerics->ops->norm_scratch(numerics, FSDP_F32, rows, cols), n = rows * cols;
    struct layer l = { .rows = rows, .cols = cols, .n = n, .rms = rms };
    float *x = random_floats(1, n, 2.0f);

    for (size_t i = 0; i < n; i++)
        x[i] += shift;
    l.forward = (struct numerics_norm){ .x = x,
                                        .weight = random_floats(2, cols, 1.0f),
                                        .bias = rms ? NULL : random_floats(3, cols, 1.0f),
                                        .y = random_floats(5, n, 1.0f),
                                        .mean = rms ? NULL : random_floats(6, rows, 1.0f),
                                        .rstd = random_floats(7, rows, 1.0f),
                                        .rows = rows,
                                        .cols = cols,
                                        .eps = 1e-5f };
    l.backward = (struct numerics_norm_backward){ .dy = random_floats(4, n, 1.0f),
                                                  .x = x,
                                                  .weight = l.forward.weight,
                                                  .mean = l.forward.mean,
                                                  .rstd = l.forward.rstd,
                                                  .dx = random_floats(8, n, 1.0f),
                                                  .dweight = random_floats(9, cols, 1.0f),
                                                  .dbias = rms ? NULL : random_floats(10, cols, 1.0f),
                                                  .rows = rows,
                                                  .cols = cols,
                                                  .scratch = row_zeros(scratch_bytes) };
    memset(l.backward.scratch, 0xFF, scratch_bytes); /* NaN: nothing may be read that was not written */
    return l;
}

static double at(const void *floats, size_t i)
{
    return (double)((const float *)floats)[i];
}

/* The statistics of row i in double, with its element `moved` moved by h. */
static void statistics(const struct layer *l, size_t i, size_t moved, double h, double *mean, double *rstd)
{
    double mu = 0, variance = 0;

    for (size_t j = 0; j < l->cols && !l->rms; j++)
        mu += (at(l->forward.x, i * l->cols + j) + (j == moved ? h : 0)) / (double)l->cols;
    for (size_t j = 0; j < l->cols; j++) {
        const double d = at(l->forward.x, i * l->cols + j) + (j == moved ? h : 0) - mu;

        variance += d * d / (double)l->cols;
    }
    *mean = mu;
    *rstd = 1 / sqrt(variance + eps);
}

static double y_of(const struct layer *l, size_t j, double x, double mean, double rstd)
{
    return (x - mean) * rstd * at(l->forward.weight, j) + (l->rms ? 0 : at(l->forward.bias, j));
}

static void check_forward(const struct row_case *row, const struct layer *l, double tolerance)
{
    for (size_t i = 0; i < l->rows; i++) {
        double mean, rstd;

        statistics(l, i, 0, 0, &mean, &rstd);
        if (!l->rms)
            assert_near(row, "mean", l->forward.mean + i, &mean, 1, 2e-7, 2e-7);
        assert_near(row, "rstd", l->forward.rstd + i, &rstd, 1, tolerance, 0);
        for (size_t j = 0; j < l->cols; j++) {
            const double x = at(l->forward.x, i * l->cols + j), y = y_of(l, j, x, mean, rstd);

            assert_near(row, "y", (float *)l->forward.y + i * l->cols + j, &y, 1, 2e-7,
                        tolerance * fabs(at(l->forward.weight, j)) * (1 + fabs((x - mean) * rstd)));
        }
    }
}

ROWS_TEST(numerics_norm, forward_is_that_of_the_papers)
{
    for (size_t k = 0; k < 2 * n_odd_sizes * n_odd_sizes; k++) {
        struct layer l =
            layer_of(numerics, k % 2, odd_sizes[k / 2 % n_odd_sizes], odd_sizes[k / 2 / n_odd_sizes], 0);

        numerics->ops->norm(numerics, NULL, &l.forward);
        check_forward(row, &l, 1e-6); /* float32 mean, statistics and three products */
    }
}

ROWS_TEST(numerics_norm, a_mean_far_from_zero_does_not_cost_the_variance)
{
    struct layer l = layer_of(numerics, false, 4, 512, 1000.0f);

    numerics->ops->norm(numerics, NULL, &l.forward);

    /* E[x^2] - E[x]^2 would lose 1e6 * 6e-8 / 4 = 1.5 %. The rounding of the mean to float32 alone is 3e-5 of
     * an x of 2. */
    check_forward(row, &l, 4e-5);
}

/* sum(dy * y) of one row, with element `moved` moved by h. */
static double objective(const struct layer *l, size_t i, size_t moved, double h)
{
    double sum = 0, mean, rstd;

    statistics(l, i, moved, h, &mean, &rstd);
    for (size_t j = 0; j < l->cols; j++)
        sum += at(l->backward.dy, i * l->cols + j) *
               y_of(l, j, at(l->forward.x, i * l->cols + j) + (j == moved ? h : 0), mean, rstd);
    return sum;
}

/* The gradient with respect to x by central differences, in double: truncation and rounding are near 1e-9. */
static void check_dx(const struct row_case *row, const struct layer *l, const float *before)
{
    const double h = 1e-4;

    for (size_t i = 0; i < l->n; i++) {
        const size_t r = i / l->cols, j = i % l->cols;
        const double scale = (double)l->forward.rstd[r] * sqrt((double)l->cols);
        const double slope = (objective(l, r, j, h) - objective(l, r, j, -h)) / (2 * h);
        const double want = before == NULL ? slope : slope + (double)before[i];

        /* Errors are relative to the row's gradient before its projections are taken out. */
        assert_near(row, "dx", (float *)l->backward.dx + i, &want, 1, 2e-6, 1e-6 * scale + 1e-6);
    }
}

/* Sums of terms of size 1: runs of 16 rows in float32, then double. A lost row would show as 1. */
static void check_params(const struct row_case *row, const struct layer *l, const float *dweight,
                         const float *dbias)
{
    for (size_t j = 0; j < l->cols; j++) {
        double weight = dweight == NULL ? 0 : (double)dweight[j], bias = dbias == NULL ? 0 : (double)dbias[j];

        for (size_t i = 0; i < l->rows; i++) {
            const double dy = at(l->backward.dy, i * l->cols + j),
                         mean = l->rms ? 0 : (double)l->forward.mean[i];

            weight += dy * (at(l->forward.x, i * l->cols + j) - mean) * (double)l->forward.rstd[i];
            bias += dy;
        }
        assert_near(row, "dweight", (float *)l->backward.dweight + j, &weight, 1, 2e-7,
                    4e-7 * sqrt((double)l->rows));
        if (!l->rms)
            assert_near(row, "dbias", (float *)l->backward.dbias + j, &bias, 1, 2e-7,
                        4e-7 * sqrt((double)l->rows));
    }
}

static void run_both(struct numerics *numerics, struct layer *l)
{
    numerics->ops->norm(numerics, NULL, &l->forward);
    numerics->ops->norm_backward(numerics, NULL, &l->backward);
}

ROWS_TEST(numerics_norm, backward_is_the_slope_of_forward_and_each_flag_adds_its_own)
{
    static const size_t sizes[][2] = { { 1, 3 },   { 2, 7 },  { 3, 17 },  { 5, 16 },  { 33, 5 }, { 7, 64 },
                                       { 65, 33 }, { 1, 65 }, { 200, 3 }, { 2, 130 }, { 70, 19 } };

    for (size_t k = 0; k < 16 * sizeof sizes / sizeof *sizes; k++) {
        const size_t rows = sizes[k / 16][0], cols = sizes[k / 16][1];
        const bool into_dx = k & 1, into_weight = k & 2, into_bias = k & 4;
        struct layer l = layer_of(numerics, k & 8, rows, cols, 0);
        const float *dx = copy_floats(l.backward.dx, l.n), *dweight = copy_floats(l.backward.dweight, cols);
        const float *dbias = l.rms ? NULL : copy_floats(l.backward.dbias, cols);

        l.backward.accumulate_dx = into_dx;
        l.backward.accumulate_dweight = into_weight;
        l.backward.accumulate_dbias = into_bias;
        run_both(numerics, &l);
        check_dx(row, &l, into_dx ? dx : NULL);
        check_params(row, &l, into_weight ? dweight : NULL, into_bias ? dbias : NULL);
    }
}

ROWS_TEST(numerics_norm, a_gradient_that_is_not_wanted_changes_no_bit_of_the_others)
{
    for (int v = 0; v < 6; v++) {
        struct layer all = layer_of(numerics, v % 2, 70, 19, 0), some = layer_of(numerics, v % 2, 70, 19, 0);
        void **const unwanted[] = { &some.backward.dx, &some.backward.dweight, &some.backward.dbias };

        *unwanted[v / 2] = NULL;
        run_both(numerics, &all);
        run_both(numerics, &some);
        if (some.backward.dx != NULL)
            cr_assert_arr_eq(some.backward.dx, all.backward.dx, all.n * sizeof(float), "dx");
        if (some.backward.dweight != NULL)
            cr_assert_arr_eq(some.backward.dweight, all.backward.dweight, 19 * sizeof(float), "dweight");
        if (some.backward.dbias != NULL)
            cr_assert_arr_eq(some.backward.dbias, all.backward.dbias, 19 * sizeof(float), "dbias");
    }
}

ROWS_TEST(numerics_norm, many_rows_sum_their_parameter_gradients_exactly)
{
    struct layer l = layer_of(numerics, false, 5000, 65, 0.5f);

    run_both(numerics, &l);

    check_params(row, &l, NULL, NULL);
}

/* A constant row has no variance: eps alone keeps the result finite. */
ROWS_TEST(numerics_norm, constant_rows_stay_finite)
{
    struct layer l = layer_of(numerics, false, 2, 100, 0);

    for (size_t i = 0; i < 200; i++)
        ((float *)(uintptr_t)l.forward.x)[i] = 3.7f;

    run_both(numerics, &l);

    check_forward(row, &l, 1e-4); /* the mean's rounding, 1e-7, times an rstd of 316 */
    for (size_t i = 0; i < 200; i++)
        cr_assert(isfinite(at(l.forward.y, i)) && isfinite(at(l.backward.dx, i)));
}

/*
 * The sum in place of a or apart from it, with dropout or without: the bits of the operations one after the
 * other.
 */
ROWS_TEST(numerics_norm, the_sum_before_it_in_one_pass_changes_no_bit)
{
    static const struct dropout drops = { .p = 0.3f, .key = 5, .first_row = 77 };

    for (size_t v = 0; v < 8 * n_odd_sizes; v++) {
        const size_t rows = 65, cols = odd_sizes[v / 8], n = rows * cols;
        struct layer want = layer_of(numerics, v & 4, rows, cols, 0),
                     got = layer_of(numerics, v & 4, rows, cols, 0);
        float *a = random_floats(1, n, 1.0f), *b = random_floats(2, n, 1.0f), *x = copy_floats(a, n),
              *sum = copy_floats(a, n);

        if (v & 1)
            op_dropout(numerics, NULL, b, sum, rows, cols, &drops, true);
        else
            op_add(numerics, NULL, FSDP_F32, a, b, sum, n);
        want.forward.x = sum;
        numerics->ops->norm(numerics, NULL, &want.forward);

        OP(add_norm, numerics, NULL, .a = v & 2 ? x : a, .b = b, .dropout = v & 1 ? &drops : NULL, .x = x,
           .y = got.forward.y, .weight = got.forward.weight, .bias = got.forward.bias,
           .mean = got.forward.mean, .rstd = got.forward.rstd, .rows = rows, .cols = cols, .eps = 1e-5f);

        cr_assert(memcmp(x, sum, n * sizeof *x) == 0, "sum, way %zu, %zu columns", v % 8, cols);
        cr_assert(memcmp(got.forward.y, want.forward.y, n * sizeof *x) == 0, "norm, way %zu, %zu columns",
                  v % 8, cols);
        cr_assert(want.rms || memcmp(got.forward.mean, want.forward.mean, rows * sizeof *x) == 0);
        cr_assert(memcmp(got.forward.rstd, want.forward.rstd, rows * sizeof *x) == 0);
    }
}

/* `x` rounded to what bfloat16 holds, and the same numbers as bfloat16. */
static uint16_t *narrow_both(const void *x, size_t n)
{
    float *wide = (float *)(uintptr_t)x;
    uint16_t *narrow = narrow_of(wide, n);

    for (size_t i = 0; i < n; i++)
        wide[i] = bf16_to_f32(narrow[i]);
    return narrow;
}

/* The same call on bfloat16; its statistics and dbias are float32. */
static struct layer narrow_layer(struct numerics *numerics, const struct layer *l)
{
    const size_t scratch_bytes = numerics->ops->norm_scratch(numerics, FSDP_BF16, l->rows, l->cols);
    struct layer s = *l;

    s.forward.dtype = s.backward.dtype = s.backward.dweight_dtype = FSDP_BF16;
    s.forward.x = s.backward.x = narrow_both(l->forward.x, l->n);
    s.forward.weight = s.backward.weight = narrow_both(l->forward.weight, l->cols);
    s.forward.bias = l->rms ? NULL : narrow_both(l->forward.bias, l->cols);
    s.forward.y = row_zeros(l->n * sizeof(uint16_t));
    s.forward.mean = l->rms ? NULL : row_zeros(l->rows * sizeof(float));
    s.forward.rstd = row_zeros(l->rows * sizeof(float));
    s.backward.mean = s.forward.mean;
    s.backward.rstd = s.forward.rstd;
    s.backward.dy = narrow_both(l->backward.dy, l->n);
    s.backward.dx = narrow_both(l->backward.dx, l->n);
    s.backward.dweight = narrow_both(l->backward.dweight, l->cols);
    s.backward.dbias = l->rms ? NULL : copy_floats(l->backward.dbias, l->cols);
    s.backward.scratch = row_zeros(scratch_bytes);
    memset(s.backward.scratch, 0xFF, scratch_bytes);
    return s;
}

static void compare(const struct row_case *row, struct numerics *numerics, struct layer l)
{
    struct layer s = narrow_layer(numerics, &l);
    double *want = row_zeros(l.cols * sizeof *want);
    float *got = row_zeros(l.cols * sizeof *got);

    run_both(numerics, &l);
    run_both(numerics, &s);
    assert_rounded(row, "y", s.forward.y, l.forward.y, l.n);
    cr_assert(l.rms || memcmp(s.forward.mean, l.forward.mean, l.rows * sizeof(float)) == 0);
    cr_assert(memcmp(s.forward.rstd, l.forward.rstd, l.rows * sizeof(float)) == 0);
    assert_rounded(row, "dx", s.backward.dx, l.backward.dx, l.n);
    for (size_t j = 0; j < l.cols && !l.rms; j++)
        want[j] = at(l.backward.dbias, j);
    if (!l.rms)
        assert_near(row, "dbias", s.backward.dbias, want, l.cols, 1e-6, 1e-5);
    for (size_t j = 0; j < l.cols; j++) { /* sums in another order may round to the neighbour */
        want[j] = at(l.backward.dweight, j);
        got[j] = bf16_to_f32(((const uint16_t *)s.backward.dweight)[j]);
    }
    assert_near(row, "dweight", got, want, l.cols, 0x1p-8, 1e-5);
}

/* After a sum of x and dy, which is rounded before it is normalised. */
static void compare_sums(struct numerics *numerics, struct layer s)
{
    uint16_t *sum = row_zeros(s.n * sizeof *sum), *x = row_zeros(s.n * sizeof *x),
             *y = row_zeros(s.n * sizeof *y);
    float *mean = s.rms ? NULL : row_zeros(s.rows * sizeof *mean), *rstd = row_zeros(s.rows * sizeof *rstd);

    op_add(numerics, NULL, FSDP_BF16, s.forward.x, s.backward.dy, sum, s.n);
    OP(add_norm, numerics, NULL, .dtype = FSDP_BF16, .a = s.forward.x, .b = s.backward.dy, .x = x, .y = y,
       .weight = s.forward.weight, .bias = s.forward.bias, .mean = mean, .rstd = rstd, .rows = s.rows,
       .cols = s.cols, .eps = 1e-5f);
    s.forward.x = sum;
    numerics->ops->norm(numerics, NULL, &s.forward);
    cr_assert(memcmp(x, sum, s.n * sizeof *sum) == 0 && memcmp(y, s.forward.y, s.n * sizeof *y) == 0);
    cr_assert(s.rms || memcmp(mean, s.forward.mean, s.rows * sizeof(float)) == 0);
    cr_assert(memcmp(rstd, s.forward.rstd, s.rows * sizeof(float)) == 0);
}

FAST_ROWS_TEST(numerics_norm, on_bfloat16_is_float32_rounded_once)
{
    static const size_t sizes[][2] = { { 1, 1 }, { 7, 19 }, { 333, 65 }, { 3, NUMERICS_BF16_MAX_COLS } };

    for (size_t v = 0; v < 16; v++) {
        struct layer l = layer_of(numerics, v & 1, sizes[v / 4][0], sizes[v / 4][1], 0);

        l.backward.accumulate_dx = l.backward.accumulate_dweight = l.backward.accumulate_dbias = v & 2;
        compare(row, numerics, l);
        compare_sums(numerics, narrow_layer(numerics, &l));
    }
}
