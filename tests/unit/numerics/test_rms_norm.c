/* RMSNorm, which is the norm's slots without a mean and a bias, against doubles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "tests/unit/numerics/rows.h"

static const double eps = (double)1e-5f;

struct layer {
    size_t rows, cols;
    float *x, *weight, *y, *rstd, *dy, *dx, *dweight;
    void *scratch;
};

static void layer_init(struct layer *l, struct numerics *numerics, size_t rows, size_t cols)
{
    const size_t scratch_bytes = numerics->ops->layer_norm_scratch(numerics, rows, cols);

    *l = (struct layer){ .rows = rows, .cols = cols };
    l->x = random_floats(1, rows * cols, 2.0f);
    l->weight = random_floats(2, cols, 1.0f);
    l->dy = random_floats(4, rows * cols, 1.0f);
    l->y = random_floats(5, rows * cols, 1.0f);
    l->rstd = random_floats(7, rows, 1.0f);
    l->dx = random_floats(8, rows * cols, 1.0f);
    l->dweight = random_floats(9, cols, 1.0f);
    l->scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
    memset(l->scratch, 0xFF, scratch_bytes); /* NaN: nothing may be read that was not written */
}

static void layer_fini(struct layer *l)
{
    free(l->x), free(l->weight), free(l->y), free(l->rstd);
    free(l->dy), free(l->dx), free(l->dweight), free(l->scratch);
}

static void forward(struct numerics *numerics, struct layer *l)
{
    numerics->ops->layer_norm(numerics, NULL, l->x, l->weight, NULL, l->y, NULL, l->rstd, l->rows, l->cols,
                              1e-5f);
}

static void backward(struct numerics *numerics, struct layer *l, bool accumulate_dx, bool accumulate_params)
{
    numerics->ops->layer_norm_backward(numerics, NULL, l->dy, l->x, l->weight, NULL, l->rstd, l->dx,
                                       accumulate_dx, l->dweight, NULL, accumulate_params, l->scratch,
                                       l->rows, l->cols);
}

/* 1 / root mean square of a row, with its element `moved` moved by h. */
static double rstd_of(const struct layer *l, size_t i, size_t moved, double h)
{
    double squares = 0;

    for (size_t j = 0; j < l->cols; j++) {
        const double x = (double)l->x[i * l->cols + j] + (j == moved ? h : 0);

        squares += x * x / (double)l->cols;
    }
    return 1 / sqrt(squares + eps);
}

ROWS_TEST(numerics_rms_norm, forward_is_that_of_the_paper)
{
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t c = 0; c < n_odd_sizes; c++) {
        struct layer l;

        layer_init(&l, &numerics, 65, odd_sizes[c]);
        forward(&numerics, &l);
        for (size_t i = 0; i < l.rows; i++) {
            const double rstd = rstd_of(&l, i, 0, 0);

            assert_near(row, "rstd", l.rstd + i, &rstd, 1, 1e-6, 0);
            for (size_t j = 0; j < l.cols; j++) {
                const double y = (double)l.x[i * l.cols + j] * rstd * (double)l.weight[j];

                assert_near(row, "y", l.y + i * l.cols + j, &y, 1, 1e-6, 0); /* statistics, two products */
            }
        }
        layer_fini(&l);
    }
    numerics_close(&numerics);
}

/* sum(dy * y) of one row, with element `moved` moved by h. */
static double objective(const struct layer *l, size_t i, size_t moved, double h)
{
    const double rstd = rstd_of(l, i, moved, h);
    double sum = 0;

    for (size_t j = 0; j < l->cols; j++)
        sum += (double)l->dy[i * l->cols + j] * ((double)l->x[i * l->cols + j] + (j == moved ? h : 0)) *
               rstd * (double)l->weight[j];
    return sum;
}

/* By central differences in double, and by the definition of the sums. */
static void check(const struct row_case *row, const struct layer *l, const float *dx, const float *dweight)
{
    const double h = 1e-4;

    for (size_t i = 0; i < l->rows; i++) {
        const double scale = (double)l->rstd[i] * sqrt((double)l->cols);

        for (size_t j = 0; j < l->cols; j++) {
            const double slope = (objective(l, i, j, h) - objective(l, i, j, -h)) / (2 * h);
            const double want = dx == NULL ? slope : slope + (double)dx[i * l->cols + j];

            assert_near(row, "dx", l->dx + i * l->cols + j, &want, 1, 2e-6, 1e-6 * scale + 1e-6);
        }
    }
    for (size_t j = 0; j < l->cols; j++) {
        double want = dweight == NULL ? 0 : (double)dweight[j];

        for (size_t i = 0; i < l->rows; i++)
            want += (double)l->dy[i * l->cols + j] * (double)l->x[i * l->cols + j] * (double)l->rstd[i];
        assert_near(row, "dweight", l->dweight + j, &want, 1, 2e-7, 4e-7 * sqrt((double)l->rows));
    }
}

ROWS_TEST(numerics_rms_norm, backward_is_the_slope_of_forward_and_each_flag_adds_its_own)
{
    static const size_t sizes[][2] = { { 1, 3 },   { 2, 7 },  { 3, 17 }, { 5, 16 },
                                       { 70, 19 }, { 7, 64 }, { 2, 130 } };
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t s = 0; s < 4 * sizeof sizes / sizeof *sizes; s++) {
        const size_t rows = sizes[s / 4][0], cols = sizes[s / 4][1];
        const bool into_dx = s & 1, into_params = s & 2;
        float *dx, *dweight;
        struct layer l;

        layer_init(&l, &numerics, rows, cols);
        dx = copy_floats(l.dx, rows * cols);
        dweight = copy_floats(l.dweight, cols);
        forward(&numerics, &l);
        backward(&numerics, &l, into_dx, into_params);
        check(row, &l, into_dx ? dx : NULL, into_params ? dweight : NULL);
        free(dx), free(dweight);
        layer_fini(&l);
    }
    numerics_close(&numerics);
}

/* In place or beside, dropped or not: the bits of the operations one after the other. */
FAST_ROWS_TEST(numerics_rms_norm, the_sum_before_it_in_one_pass_changes_no_bit)
{
    static const struct dropout drops = { .p = 0.3f, .key = 5, .first_row = 77 };
    struct numerics numerics;

    row_open(&numerics, row);
    for (size_t v = 0; v < 4 * n_odd_sizes; v++) {
        const size_t rows = 65, cols = odd_sizes[v / 4], n = rows * cols;
        const struct dropout *dropout = v % 2 == 0 ? NULL : &drops;
        float *a = random_floats(1, n, 1.0f), *b = random_floats(2, n, 1.0f), *x = copy_floats(a, n);
        struct layer want, got;
        struct numerics_add_norm both;

        layer_init(&want, &numerics, rows, cols);
        layer_init(&got, &numerics, rows, cols);
        memcpy(want.x, a, n * sizeof *a);
        if (dropout != NULL)
            numerics.ops->dropout(&numerics, NULL, b, want.x, rows, cols, dropout, true);
        else
            numerics.ops->add(&numerics, NULL, a, b, want.x, n);
        forward(&numerics, &want);
        both = (struct numerics_add_norm){ .a = v % 4 < 2 ? a : x,
                                           .b = b,
                                           .dropout = dropout,
                                           .x = x,
                                           .y = got.y,
                                           .weight = got.weight,
                                           .rstd = got.rstd,
                                           .rows = rows,
                                           .cols = cols,
                                           .eps = 1e-5f };

        numerics.ops->add_layer_norm(&numerics, NULL, FSDP_F32, &both);

        cr_assert(memcmp(x, want.x, n * sizeof *x) == 0, "sum, %zu columns", cols);
        cr_assert(memcmp(got.y, want.y, n * sizeof *x) == 0, "norm, %zu columns", cols);
        cr_assert(memcmp(got.rstd, want.rstd, rows * sizeof *x) == 0);
        layer_fini(&want);
        layer_fini(&got);
        free(a), free(b), free(x);
    }
    numerics_close(&numerics);
}

/* --- bfloat16 --- */

/* The numbers as bfloat16 holds them, in both dtypes. */
static uint16_t *narrow_both(float *x, size_t n)
{
    uint16_t *narrow = malloc(n * sizeof *narrow + 1);

    for (size_t i = 0; i < n; i++)
        x[i] = bf16_to_f32(narrow[i] = bf16_of_f32(x[i]));
    return narrow;
}

static void assert_rounded(const char *what, const uint16_t *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cr_assert(got[i] == bf16_of_f32(want[i]), "%s: element %zu of %zu is %a, not %a rounded", what, i, n,
                  (double)bf16_to_f32(got[i]), (double)want[i]);
}

static void compare(const struct row_case *row, struct numerics *numerics, size_t rows, size_t cols,
                    bool accumulate)
{
    const struct numerics_bf16 *bf16 = numerics->ops->bf16;
    const size_t n = rows * cols, size_bytes = bf16->layer_norm_scratch(numerics, rows, cols);
    uint16_t *x, *weight, *dy, *dx, *dweight, *y = calloc(n, sizeof *y), *sum = calloc(n, sizeof *sum);
    void *scratch = aligned_alloc(64, (size_bytes + 64) / 64 * 64);
    float *rstd = calloc(rows, sizeof *rstd), *wide;
    double *want = calloc(cols, sizeof *want);
    struct layer l;

    layer_init(&l, numerics, rows, cols);
    x = narrow_both(l.x, n), weight = narrow_both(l.weight, cols), dy = narrow_both(l.dy, n);
    dx = narrow_both(l.dx, n), dweight = narrow_both(l.dweight, cols);
    memset(scratch, 0xFF, size_bytes);

    forward(numerics, &l);
    bf16->layer_norm(numerics, NULL, x, weight, NULL, y, NULL, rstd, rows, cols, 1e-5f);
    assert_rounded("y", y, l.y, n);
    cr_assert(memcmp(rstd, l.rstd, rows * sizeof *rstd) == 0);
    backward(numerics, &l, accumulate, accumulate);
    bf16->layer_norm_backward(numerics, NULL,
                              &(struct numerics_bf16_norm){ .dy = dy,
                                                            .x = x,
                                                            .weight = weight,
                                                            .rstd = rstd,
                                                            .dx = dx,
                                                            .accumulate_dx = accumulate,
                                                            .dweight = dweight,
                                                            .dweight_dtype = FSDP_BF16,
                                                            .accumulate_dweight = accumulate },
                              scratch, rows, cols);
    assert_rounded("dx", dx, l.dx, n);
    wide = calloc(cols, sizeof *wide);
    for (size_t j = 0; j < cols; j++) { /* sums in another order may round to the neighbour */
        want[j] = (double)l.dweight[j];
        wide[j] = bf16_to_f32(dweight[j]);
    }
    assert_near(row, "dweight", wide, want, cols, 0x1p-8, 1e-5);

    /* And behind a sum: of x and dy, rounded. */
    bf16->add(numerics, NULL, x, dy, dx, n);
    bf16->layer_norm(numerics, NULL, dx, weight, NULL, y, NULL, rstd, rows, cols, 1e-5f);
    memset(l.rstd, 0, rows * sizeof *rstd);
    numerics->ops->add_layer_norm(numerics, NULL, FSDP_BF16,
                                  &(struct numerics_add_norm){ .a = x,
                                                               .b = dy,
                                                               .x = sum,
                                                               .y = x,
                                                               .weight = weight,
                                                               .rstd = l.rstd,
                                                               .rows = rows,
                                                               .cols = cols,
                                                               .eps = 1e-5f });
    cr_assert(memcmp(sum, dx, n * sizeof *sum) == 0);
    cr_assert(memcmp(x, y, n * sizeof *y) == 0);
    cr_assert(memcmp(l.rstd, rstd, rows * sizeof *rstd) == 0);
    free(x), free(weight), free(dy), free(dx), free(dweight), free(y), free(sum), free(scratch);
    free(rstd), free(wide), free(want);
    layer_fini(&l);
}

FAST_ROWS_TEST(numerics_rms_norm, on_bfloat16_is_float32_rounded_once)
{
    struct numerics numerics;

    row_open(&numerics, row);
    for (int accumulate = 0; accumulate < 2 && numerics.ops->bf16 != NULL; accumulate++) {
        compare(row, &numerics, 1, 1, accumulate);
        compare(row, &numerics, 7, 19, accumulate);
        compare(row, &numerics, 333, 65, accumulate);
        compare(row, &numerics, 3, NUMERICS_BF16_MAX_COLS, accumulate);
    }
    numerics_close(&numerics);
}
