#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "tests/unit/numerics/rows.h"

ROWS_TEST(numerics_elementwise, add_is_the_sum_also_in_place)
{
    static const size_t sizes[] = { 0, 1, 3, 7, 17, 64, 65, 1000, 40000 };
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t n = sizes[s];
        float *a = random_floats(1, n, 1.0f), *b = random_floats(2, n, 1.0f),
              *out = random_floats(3, n + 1, 1.0f);
        const float behind = out[n];

        numerics.ops->add(&numerics, NULL, a, b, out, n);
        for (size_t i = 0; i < n; i++)
            cr_assert(out[i] == a[i] + b[i], "element %zu of %zu", i, n);
        cr_assert(out[n] == behind, "wrote beyond %zu", n);
        numerics.ops->add(&numerics, NULL, a, b, a, n);
        cr_assert_arr_eq(a, out, n * sizeof *a);
        free(a);
        free(b);
        free(out);
    }
    numerics_close(&numerics);
}

ROWS_TEST(numerics_elementwise, column_sum_adds_every_row_once)
{
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t r = 0; r < n_odd_sizes; r++) {
        for (size_t c = 0; c < n_odd_sizes; c++) {
            const size_t rows = odd_sizes[r], cols = odd_sizes[c];
            float *x = random_floats(r + 1, rows * cols, 1.0f), *out = random_floats(9, cols, 1.0f);
            double *want = calloc(cols, sizeof *want);

            for (int accumulate = 0; accumulate < 2; accumulate++) {
                for (size_t j = 0; j < cols; j++) {
                    want[j] = accumulate ? (double)out[j] : 0;
                    for (size_t i = 0; i < rows; i++)
                        want[j] += (double)x[i * cols + j];
                }
                numerics.ops->column_sum(&numerics, NULL, x, out, rows, cols, accumulate);
                /* Trees of 8 terms of size 1 in float32, then double. */
                assert_near(row, "column_sum", out, want, cols, 2e-7, 3e-7 * sqrt((double)rows));
            }
            free(x);
            free(out);
            free(want);
        }
    }
    numerics_close(&numerics);
}

/* The definition in numerics.h, word by word. */
static float dropped_by_definition(const struct dropout *dropout, uint64_t row, uint64_t e, float x)
{
    const double keep = 1 - (double)dropout->p;
    uint32_t words[4];

    rng_philox(dropout->key, row, e / 4, words);
    return (double)words[e % 4] < floor(keep * 0x1p32) ? x * (float)(1 / keep) : 0.0f;
}

ROWS_TEST(numerics_elementwise, dropout_follows_global_row_and_element)
{
    static const size_t cols_of[] = { 1, 3, 16, 17, 63, 64, 65, 100, 1000 };
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t c = 0; c < sizeof cols_of / sizeof *cols_of; c++) {
        const size_t rows = 37, cols = cols_of[c];
        const struct dropout dropout = {
            .p = 0.3f, .key = rng_key(5, "dropout:test"), .first_row = UINT64_C(0x1fffffff0)
        }; /* crosses 32 bits on the way */
        float *x = random_floats(1, rows * cols, 1.0f), *out = random_floats(2, rows * cols, 1.0f);
        float *before = copy_floats(out, rows * cols);

        for (int accumulate = 0; accumulate < 2; accumulate++) {
            memcpy(out, before, rows * cols * sizeof *out);
            numerics.ops->dropout(&numerics, NULL, x, out, rows, cols, &dropout, accumulate);
            for (size_t i = 0; i < rows; i++) {
                for (size_t j = 0; j < cols; j++) {
                    const float y =
                        dropped_by_definition(&dropout, dropout.first_row + i, j, x[i * cols + j]);
                    const float want = accumulate ? before[i * cols + j] + y : y;

                    cr_assert(out[i * cols + j] == want, "%s %s: row %zu element %zu of %zu", row->name,
                              row->isa, i, j, cols);
                }
            }
        }
        numerics.ops->dropout(&numerics, NULL, x, out, rows, cols, &dropout, false);
        numerics.ops->dropout(&numerics, NULL, x, x, rows, cols, &dropout, false);
        cr_assert_arr_eq(x, out, rows * cols * sizeof *x, "in place differs");
        free(x);
        free(out);
        free(before);
    }
    numerics_close(&numerics);
}

ROWS_TEST(numerics_elementwise, dropout_at_its_ends_is_identity_and_zero)
{
    enum { ROWS = 5, COLS = 33 };
    struct dropout dropout = { .p = 0, .key = 1 };
    struct numerics numerics;
    float *x = random_floats(1, ROWS * COLS, 1.0f), *out = random_floats(2, ROWS * COLS, 1.0f);

    row_open(&numerics, row);

    numerics.ops->dropout(&numerics, NULL, x, out, ROWS, COLS, &dropout, false);
    cr_assert_arr_eq(x, out, ROWS * COLS * sizeof *x);
    numerics.ops->dropout(&numerics, NULL, x, out, ROWS, COLS, &dropout, true);
    for (size_t i = 0; i < ROWS * COLS; i++)
        cr_assert(out[i] == 2 * x[i]);
    dropout.p = 1;
    numerics.ops->dropout(&numerics, NULL, x, out, ROWS, COLS, &dropout, false);
    for (size_t i = 0; i < ROWS * COLS; i++)
        cr_assert(out[i] == 0);
    free(x);
    free(out);
    numerics_close(&numerics);
}

ROWS_TEST(numerics_elementwise, dropout_keeps_the_mean)
{
    enum { ROWS = 1000, COLS = 1000 };
    const struct dropout dropout = { .p = 0.1f, .key = 77, .first_row = 12 };
    struct numerics numerics;
    float *x = malloc(ROWS * COLS * sizeof *x);
    double kept = 0;

    row_open(&numerics, row);
    for (size_t i = 0; i < ROWS * COLS; i++)
        x[i] = 1;

    numerics.ops->dropout(&numerics, NULL, x, x, ROWS, COLS, &dropout, false);

    for (size_t i = 0; i < ROWS * COLS; i++)
        kept += x[i] > 0;
    /* 10^6 draws: the standard deviation is 300. */
    cr_assert(fabs(kept - 0.9 * ROWS * COLS) < 5 * 300, "%g of 10^6 kept", kept);
    free(x);
    numerics_close(&numerics);
}

/* phi and Phi, from erfc. */
static double cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

static double gelu(double x)
{
    return x * cdf(x);
}

/* x/2 (1 + tanh(u)) as x s(2 u): 1 + tanh cancels where u is far below 0. */
static double gelu_tanh(double x)
{
    return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

enum { GRID = 40001 };

/* -20 to 20, and the smallest steps around 0. */
static float grid_at(size_t i)
{
    const double u = ((double)i - GRID / 2) / (GRID / 2);

    return (float)(20 * u * u * u);
}

typedef void (*gelu_fn)(struct numerics *, struct device_stream *, const float *, float *, size_t);
typedef void (*gelu_backward_fn)(struct numerics *, struct device_stream *, const float *, const float *,
                                 float *, size_t);

/* rounding: what the exponent loses relatively, by x. */
static void check_gelu(const struct row_case *row, struct numerics *numerics, const char *name, gelu_fn run,
                       double (*truth)(double), double (*rounding)(double))
{
    float *x = malloc(GRID * sizeof *x), *y = malloc(GRID * sizeof *y);
    double *want = malloc(GRID * sizeof *want);

    for (size_t i = 0; i < GRID; i++) {
        x[i] = grid_at(i);
        want[i] = truth((double)x[i]);
    }

    run(numerics, NULL, x, y, GRID);

    for (size_t i = 0; i < GRID; i++)
        assert_near(row, name, y + i, want + i, 1, 5e-7 + rounding((double)x[i]),
                    2e-37); /* no subnormal exp */
    run(numerics, NULL, x, x, GRID);
    cr_assert_arr_eq(x, y, GRID * sizeof *x, "in place differs");
    free(x);
    free(y);
    free(want);
}

/* x^2 / 2 in the exponent: 1e-5 at -13 where gelu is 1e-37. */
static double square_rounding(double x)
{
    return 6e-8 * x * x;
}

/* z of the logistic function, rounded four times with its coefficients: |z| is 87 at -9.6, where gelu is 1e-37. */
static double cubic_rounding(double x)
{
    return 24e-8 * fabs(1.6 * x + 0.0714 * x * x * x);
}

/* Relative: some roundings of 6e-8. The two are 2e-4 apart at 2. */
ROWS_TEST(numerics_elementwise, gelu_is_exact_over_the_whole_range)
{
    struct numerics numerics;

    row_open(&numerics, row);
    check_gelu(row, &numerics, "gelu", numerics.ops->gelu, gelu, square_rounding);
    numerics_close(&numerics);
}

ROWS_TEST(numerics_elementwise, gelu_by_tanh_is_its_formula_over_the_whole_range)
{
    struct numerics numerics;

    row_open(&numerics, row);
    check_gelu(row, &numerics, "gelu_tanh", numerics.ops->gelu_tanh, gelu_tanh, cubic_rounding);
    numerics_close(&numerics);
}

static void check_slope(const struct row_case *row, struct numerics *numerics, const char *name,
                        gelu_backward_fn run, double (*truth)(double))
{
    float *x = malloc(GRID * sizeof *x), *dy = random_floats(3, GRID, 1.0f), *dx = malloc(GRID * sizeof *dx);
    double *want = malloc(GRID * sizeof *want);

    for (size_t i = 0; i < GRID; i++) {
        const double u = (double)(x[i] = grid_at(i)), h = 1e-5 * fmax(1, fabs(u));

        want[i] = (double)dy[i] * (truth(u + h) - truth(u - h)) / (2 * h);
    }

    run(numerics, NULL, dy, x, dx, GRID);

    assert_near(row, name, dx, want, GRID, 5e-7, 3e-7); /* the slope passes 0 at -0.75 */
    run(numerics, NULL, dy, x, dy, GRID);
    cr_assert_arr_eq(dy, dx, GRID * sizeof *dx, "in place differs");
    free(x);
    free(dy);
    free(dx);
    free(want);
}

ROWS_TEST(numerics_elementwise, gelu_backward_is_the_slope)
{
    struct numerics numerics;

    row_open(&numerics, row);
    check_slope(row, &numerics, "gelu_backward", numerics.ops->gelu_backward, gelu);
    check_slope(row, &numerics, "gelu_tanh_backward", numerics.ops->gelu_tanh_backward, gelu_tanh);
    numerics_close(&numerics);
}

/* The density outruns every power of x: no infinity times 0. */
ROWS_TEST(numerics_elementwise, gelu_slopes_of_huge_inputs_are_0_and_1)
{
    static const float huge[] = { 50, 1e5f, 1e13f, 1e20f, 3e38f };
    struct numerics numerics;
    float x[10], dy[10], dx[10];

    row_open(&numerics, row);
    for (size_t i = 0; i < 10; i++) {
        x[i] = i < 5 ? huge[i] : -huge[i - 5];
        dy[i] = 1;
    }

    numerics.ops->gelu_tanh_backward(&numerics, NULL, dy, x, dx, 10);

    for (size_t i = 0; i < 10; i++)
        cr_assert(dx[i] == (i < 5 ? 1.0f : 0.0f), "%s %s: the slope at %g is %g", row->name, row->isa,
                  (double)x[i], (double)dx[i]);
    numerics_close(&numerics);
}

static void check_counts(const struct row_case *row, struct numerics *numerics, const char *name, gelu_fn run,
                         double (*truth)(double), double (*rounding)(double))
{
    for (size_t n = 0; n < 70; n++) {
        float *x = random_floats(n + 1, n, 1.0f), *y = random_floats(2, n + 1, 1.0f);
        const float behind = y[n];

        run(numerics, NULL, x, y, n);
        for (size_t i = 0; i < n; i++) {
            const double want = truth((double)x[i]);

            assert_near(row, name, y + i, &want, 1, 5e-7 + rounding((double)x[i]), 0);
        }
        cr_assert(y[n] == behind);
        free(x);
        free(y);
    }
}

ROWS_TEST(numerics_elementwise, gelu_of_odd_counts_reads_and_writes_nothing_else)
{
    struct numerics numerics;

    row_open(&numerics, row);
    check_counts(row, &numerics, "gelu", numerics.ops->gelu, gelu, square_rounding);
    check_counts(row, &numerics, "gelu_tanh", numerics.ops->gelu_tanh, gelu_tanh, cubic_rounding);
    numerics_close(&numerics);
}

ROWS_TEST(numerics_elementwise, nan_and_infinity_stay_visible)
{
    struct numerics numerics;
    float x[20], y[20];

    row_open(&numerics, row);
    for (size_t i = 0; i < 20; i++)
        x[i] = i == 3 ? NAN : i == 17 ? INFINITY : 1.0f;

    numerics.ops->gelu(&numerics, NULL, x, y, 20);

    for (size_t i = 0; i < 20; i++)
        cr_assert(i == 3    ? isnan(y[i])
                  : i == 17 ? isinf(y[i])
                            : isfinite(y[i]),
                  "element %zu is %g", i, (double)y[i]);
    numerics_close(&numerics);
}
