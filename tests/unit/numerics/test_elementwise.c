#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "tests/unit/numerics/rows.h"

ROWS_TEST(numerics_elementwise, add_is_the_sum_also_in_place)
{
    static const size_t sizes[] = { 0, 1, 3, 7, 17, 64, 65, 1000, 40000 };

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t n = sizes[s];
        float *a = random_floats(1, n, 1.0f), *b = random_floats(2, n, 1.0f),
              *out = random_floats(3, n + 1, 1.0f);
        const float behind = out[n];

        op_add(numerics, NULL, FSDP_F32, a, b, out, n);
        for (size_t i = 0; i < n; i++)
            cr_assert(out[i] == a[i] + b[i], "element %zu of %zu", i, n);
        cr_assert(out[n] == behind, "wrote beyond %zu", n);
        op_add(numerics, NULL, FSDP_F32, a, b, a, n);
        cr_assert_arr_eq(a, out, n * sizeof *a);
    }
}

ROWS_TEST(numerics_elementwise, column_sum_adds_every_row_once)
{
    for (size_t r = 0; r < n_odd_sizes; r++) {
        for (size_t c = 0; c < n_odd_sizes; c++) {
            const size_t rows = odd_sizes[r], cols = odd_sizes[c];
            float *x = random_floats(r + 1, rows * cols, 1.0f), *out = random_floats(9, cols, 1.0f);
            double *want = row_zeros(cols * sizeof *want);

            for (int accumulate = 0; accumulate < 2; accumulate++) {
                for (size_t j = 0; j < cols; j++) {
                    want[j] = accumulate ? (double)out[j] : 0;
                    for (size_t i = 0; i < rows; i++)
                        want[j] += (double)x[i * cols + j];
                }
                op_column_sum(numerics, NULL, FSDP_F32, x, FSDP_F32, out, rows, cols, accumulate);
                /* Trees of 8 terms of size 1 in float32, then double. */
                assert_near(row, "column_sum", out, want, cols, 2e-7, 3e-7 * sqrt((double)rows));
            }
        }
    }
}

ROWS_TEST(numerics_elementwise, dropout_follows_global_row_and_element)
{
    static const size_t cols_of[] = { 1, 3, 16, 17, 63, 64, 65, 100, 1000 };

    for (size_t c = 0; c < sizeof cols_of / sizeof *cols_of; c++) {
        const size_t rows = 37, cols = cols_of[c];
        const struct dropout dropout = {
            .p = 0.3f, .key = rng_key(5, "dropout:test"), .first_row = UINT64_C(0x1fffffff0)
        }; /* crosses 32 bits on the way */
        float *x = random_floats(1, rows * cols, 1.0f), *out = random_floats(2, rows * cols, 1.0f);
        float *before = copy_floats(out, rows * cols);

        for (int accumulate = 0; accumulate < 2; accumulate++) {
            memcpy(out, before, rows * cols * sizeof *out);
            op_dropout(numerics, NULL, x, out, rows, cols, &dropout, accumulate);
            for (size_t i = 0; i < rows; i++) {
                for (size_t j = 0; j < cols; j++) {
                    const float y = x[i * cols + j] * (float)dropout_factor(&dropout, i, j);
                    const float want = accumulate ? before[i * cols + j] + y : y;

                    cr_assert(out[i * cols + j] == want, "%s %s: row %zu element %zu of %zu", row->name,
                              row->isa, i, j, cols);
                }
            }
        }
        op_dropout(numerics, NULL, x, out, rows, cols, &dropout, false);
        op_dropout(numerics, NULL, x, x, rows, cols, &dropout, false);
        cr_assert_arr_eq(x, out, rows * cols * sizeof *x, "in place differs");
    }
}

ROWS_TEST(numerics_elementwise, dropout_at_its_ends_is_identity_and_zero)
{
    enum { ROWS = 5, COLS = 33 };
    struct dropout dropout = { .p = 0, .key = 1 };
    float *x = random_floats(1, ROWS * COLS, 1.0f), *out = random_floats(2, ROWS * COLS, 1.0f);

    op_dropout(numerics, NULL, x, out, ROWS, COLS, &dropout, false);
    cr_assert_arr_eq(x, out, ROWS * COLS * sizeof *x);
    op_dropout(numerics, NULL, x, out, ROWS, COLS, &dropout, true);
    for (size_t i = 0; i < ROWS * COLS; i++)
        cr_assert(out[i] == 2 * x[i]);
    dropout.p = 1;
    op_dropout(numerics, NULL, x, out, ROWS, COLS, &dropout, false);
    for (size_t i = 0; i < ROWS * COLS; i++)
        cr_assert(out[i] == 0);
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

/* A function of numerics_activation, what it is in double, and what its exponent loses relatively, by x. */
struct function {
    const char *name;
    enum numerics_function id;
    double (*truth)(double);
    double (*rounding)(double);
};

/* x^2 / 2 in the exponent: 1e-5 at -13 where gelu is 1e-37. */
static double square_rounding(double x)
{
    return 6e-8 * x * x;
}

/*
 * z of the logistic function, rounded four times with its coefficients: |z| is 87 at -9.6, where gelu is
 * 1e-37.
 */
static double cubic_rounding(double x)
{
    return 24e-8 * fabs(1.6 * x + 0.0714 * x * x * x);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double no_rounding(double x)
{
    (void)x;
    return 0;
}

static const struct function functions[] = {
    { "gelu", NUMERICS_GELU, gelu, square_rounding },
    { "gelu_tanh", NUMERICS_GELU_TANH, gelu_tanh, cubic_rounding },
    { "silu", NUMERICS_SILU, silu, no_rounding },
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

/* Relative: some roundings of 6e-8. The two GELUs are 2e-4 apart at 2. */
ROWS_TEST(numerics_elementwise, each_function_is_its_formula_over_the_whole_range)
{
    float *x = row_zeros(GRID * sizeof *x), *y = row_zeros(GRID * sizeof *y);

    for (const struct function *f = functions; f < functions + N_FUNCTIONS; f++) {
        for (size_t i = 0; i < GRID; i++)
            x[i] = grid_at(i);
        op_activation(numerics, NULL, FSDP_F32, f->id, x, y, GRID);
        for (size_t i = 0; i < GRID; i++) {
            const double want = f->truth((double)x[i]);

            /* no subnormal exp */
            assert_near(row, f->name, y + i, &want, 1, 5e-7 + f->rounding((double)x[i]), 2e-37);
        }
        op_activation(numerics, NULL, FSDP_F32, f->id, x, x, GRID);
        cr_assert_arr_eq(x, y, GRID * sizeof *x, "in place differs");
    }
}

ROWS_TEST(numerics_elementwise, each_backward_is_the_slope)
{
    float *x = row_zeros(GRID * sizeof *x), *dx = row_zeros(GRID * sizeof *dx);
    double *want = row_zeros(GRID * sizeof *want);

    for (const struct function *f = functions; f < functions + N_FUNCTIONS; f++) {
        float *dy = random_floats(3, GRID, 1.0f);

        for (size_t i = 0; i < GRID; i++) {
            const double u = (double)(x[i] = grid_at(i)), h = 1e-5 * fmax(1, fabs(u));

            want[i] = (double)dy[i] * (f->truth(u + h) - f->truth(u - h)) / (2 * h);
        }
        op_activation_backward(numerics, NULL, FSDP_F32, f->id, dy, x, dx, GRID);
        assert_near(row, f->name, dx, want, GRID, 5e-7, 3e-7); /* the slope passes 0 at -0.75 */
        op_activation_backward(numerics, NULL, FSDP_F32, f->id, dy, x, dy, GRID);
        cr_assert_arr_eq(dy, dx, GRID * sizeof *dx, "in place differs");
    }
}

/* The density outruns every power of x: no infinity times 0. */
ROWS_TEST(numerics_elementwise, gelu_slopes_of_huge_inputs_are_0_and_1)
{
    static const float huge[] = { 50, 1e5f, 1e13f, 1e20f, 3e38f };
    float x[10], dy[10], dx[10];

    for (size_t i = 0; i < 10; i++) {
        x[i] = i < 5 ? huge[i] : -huge[i - 5];
        dy[i] = 1;
    }

    op_activation_backward(numerics, NULL, FSDP_F32, NUMERICS_GELU_TANH, dy, x, dx, 10);

    for (size_t i = 0; i < 10; i++)
        cr_assert(dx[i] == (i < 5 ? 1.0f : 0.0f), "%s %s: the slope at %g is %g", row->name, row->isa,
                  (double)x[i], (double)dx[i]);
}

ROWS_TEST(numerics_elementwise, functions_of_odd_counts_read_and_write_nothing_else)
{
    for (size_t n = 0; n < 70 * N_FUNCTIONS; n++) {
        const struct function *f = &functions[n / 70];
        float *x = random_floats(n + 1, n % 70, 1.0f), *y = random_floats(2, n % 70 + 1, 1.0f);
        const float behind = y[n % 70];

        op_activation(numerics, NULL, FSDP_F32, f->id, x, y, n % 70);
        for (size_t i = 0; i < n % 70; i++) {
            const double want = f->truth((double)x[i]);

            assert_near(row, f->name, y + i, &want, 1, 5e-7 + f->rounding((double)x[i]), 0);
        }
        cr_assert(y[n % 70] == behind);
    }
}

ROWS_TEST(numerics_elementwise, nan_and_infinity_stay_visible)
{
    float x[20], y[20];

    for (size_t i = 0; i < 20; i++)
        x[i] = i == 3 ? NAN : i == 17 ? INFINITY : 1.0f;

    op_activation(numerics, NULL, FSDP_F32, NUMERICS_GELU, x, y, 20);

    for (size_t i = 0; i < 20; i++)
        cr_assert(i == 3    ? isnan(y[i])
                  : i == 17 ? isinf(y[i])
                            : isfinite(y[i]),
                  "element %zu is %g", i, (double)y[i]);
}
