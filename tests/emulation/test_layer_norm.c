#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>

#include "tests/emulation/cases.h"

TestSuite(emulated_layer_norm, .fini = cases_end);

struct norm_case {
    size_t rows, cols;
    enum fsdp_dtype dtype;
    bool residual, bias;
    struct operand a, b, sum, weight, shift, y, mean, rstd;
};

static void run_forward(void *context)
{
    struct norm_case *c = context;

    cr_assert_eq(kernel_add_layer_norm(NULL, c->a.data, c->residual ? c->b.data : NULL,
                                       c->residual ? c->sum.data : NULL, c->weight.data,
                                       c->bias ? c->shift.data : NULL, c->y.data, c->mean.data, c->rstd.data,
                                       c->rows, c->cols, 1e-5f, c->dtype),
                 0);
}

static void check_forward(struct norm_case c)
{
    const size_t n = c.rows * c.cols;
    float *y = case_floats(n), *mean = case_floats(c.rows), *rstd = case_floats(c.rows),
          *zero = case_floats(c.cols);
    struct operand *outputs[] = { &c.y, &c.mean, &c.rstd, &c.sum };
    char what[100];

    snprintf(what, sizeof what, "(%zu, %zu) %s%s", c.rows, c.cols, fsdp_dtype_name(c.dtype),
             c.residual ? " with residual" : "");
    c.a = operand_random(c.dtype, n, 1, 2.0f);
    c.b = operand_random(c.dtype, n, 2, 1.0f);
    c.weight = operand_random(c.dtype, c.cols, 3, 1.0f);
    c.shift = operand_random(c.dtype, c.cols, 4, 1.0f);
    c.sum = operand_empty(c.dtype, c.residual ? n : 0);
    c.y = operand_empty(c.dtype, n);
    c.mean = operand_empty(FSDP_F32, c.rows);
    c.rstd = operand_empty(FSDP_F32, c.rows);
    for (size_t j = 0; j < c.cols; j++)
        zero[j] = 0;

    under_schedules(run_forward, &c, outputs, 4);

    if (c.residual) {
        float *sum = case_floats(n);

        ref_add(NULL, NULL, c.a.values, c.b.values, sum, n);
        expect_exact(&c.sum, sum, what);
    }
    ref_layer_norm(NULL, NULL, c.residual ? c.sum.values : c.a.values, c.weight.values,
                   c.bias ? c.shift.values : zero, y, mean, rstd, c.rows, c.cols, 1e-5f);
    /* Sums of cols / 32 terms in float32, then one rounding to the dtype. A row of one element has no variance:
     * its rstd is 316, and multiplies the rounding of the mean. */
    expect_close(&c.y, y, 8 * (double)roundoff(c.dtype) * (1 + largest_of(y, n)), what);
    expect_close(&c.mean, mean, 8 * (double)roundoff(FSDP_F32) * largest_of(c.a.values, n), what);
    expect_close(&c.rstd, rstd, 16 * (double)roundoff(FSDP_F32) * largest_of(rstd, c.rows), what);
}

static const size_t widths[] = { 1, 2, 7, 8, 31, 32, 33, 64, 100, 257, 768, 1000 };

Test(emulated_layer_norm, forward_is_refs)
{
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t rows = 1; rows <= 6; rows += 5)
            for (int dtype = FSDP_F32; dtype <= FSDP_BF16; dtype++)
                check_forward(
                    (struct norm_case){ .rows = rows, .cols = widths[i], .dtype = dtype, .bias = true });
}

Test(emulated_layer_norm, forward_behind_a_residual_sum_is_refs)
{
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int dtype = FSDP_F32; dtype <= FSDP_BF16; dtype++)
            check_forward(
                (struct norm_case){ .rows = 5, .cols = widths[i], .dtype = dtype, .residual = true });
}

Test(emulated_layer_norm, nothing_to_do_queues_nothing)
{
    float x = 1, y = 2;

    cr_assert_eq(kernel_layer_norm(NULL, &x, &x, NULL, &y, &y, &y, 0, 8, 1e-5f, FSDP_F32), 0);
    cr_assert_eq(kernel_layer_norm(NULL, &x, &x, NULL, &y, &y, &y, 1, 1, 1e-5f, FSDP_I32), 1);
    cr_assert_float_eq(y, 2, 0);
}
