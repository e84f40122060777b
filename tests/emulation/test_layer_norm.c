#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "tests/emulation/cases.h"

TestSuite(emulated_layer_norm, .fini = cases_end);

struct norm_case {
    size_t rows, cols;
    enum fsdp_dtype dtype;
    bool rms, residual, bias;
    struct dropout dropout; /* of the residual's second term */
    struct operand a, b, sum, weight, shift, y, mean, rstd;
};

static void run_forward(void *context)
{
    struct norm_case *c = context;

    const struct numerics_add_norm norm = { .a = c->a.data,
                                            .b = c->residual ? c->b.data : NULL,
                                            .dropout = &c->dropout,
                                            .x = c->residual ? c->sum.data : NULL,
                                            .y = c->y.data,
                                            .weight = c->weight.data,
                                            .bias = c->bias ? c->shift.data : NULL,
                                            .mean = c->rms ? NULL : c->mean.data,
                                            .rstd = c->rstd.data,
                                            .rows = c->rows,
                                            .cols = c->cols,
                                            .eps = 1e-5f };

    if (c->residual)
        cr_assert_eq((c->rms ? kernel_add_rms_norm : kernel_add_layer_norm)(NULL, &norm, c->dtype), 0);
    else if (c->rms)
        cr_assert_eq(kernel_rms_norm(NULL, norm.a, norm.weight, norm.y, norm.rstd, c->rows, c->cols, norm.eps,
                                     c->dtype),
                     0);
    else
        cr_assert_eq(kernel_layer_norm(NULL, norm.a, norm.weight, norm.bias, norm.y, norm.mean, norm.rstd,
                                       c->rows, c->cols, norm.eps, c->dtype),
                     0);
}

static void check_forward(struct norm_case c)
{
    const size_t n = c.rows * c.cols;
    float *y = case_floats(n), *mean = case_floats(c.rows), *rstd = case_floats(c.rows),
          *zero = case_floats(c.cols);
    struct operand *outputs[] = { &c.y, &c.mean, &c.rstd, &c.sum };
    char what[100];

    snprintf(what, sizeof what, "%s (%zu, %zu) %s%s, p %g", c.rms ? "rms" : "layer", c.rows, c.cols,
             fsdp_dtype_name(c.dtype), c.residual ? " with residual" : "", (double)c.dropout.p);
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

        memcpy(sum, c.a.values, n * sizeof *sum);
        ref_dropout(NULL, NULL, c.b.values, sum, c.rows, c.cols, &c.dropout, true);
        expect_exact(&c.sum, sum, what);
    }
    ref_layer_norm(NULL, NULL, c.residual ? c.sum.values : c.a.values, c.weight.values,
                   c.bias ? c.shift.values : zero, y, c.rms ? NULL : mean, rstd, c.rows, c.cols, 1e-5f);
    /* Sums of cols / 32 terms in float32, then one rounding to the dtype. A row of one element has no variance:
     * its rstd is 316, and multiplies the rounding of the mean. */
    expect_close(&c.y, y, 8 * (double)roundoff(c.dtype) * (1 + largest_of(y, n)), what);
    if (!c.rms)
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

Test(emulated_layer_norm, rms_norm_is_refs)
{
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int v = 0; v < 4; v++)
            check_forward((struct norm_case){ .rms = true,
                                              .rows = 5,
                                              .cols = widths[i],
                                              .dtype = v % 2 ? FSDP_BF16 : FSDP_F32,
                                              .residual = v / 2 });
}

/* Eight rows a block in shared memory, four, and rows too long for it; the last block has fewer rows than warps. */
Test(emulated_layer_norm, rows_of_every_length_that_shared_memory_decides_on)
{
    static const size_t lengths[] = { 1200, 2000, 2001, 6000, 6001 };

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int rms = 0; rms < 2; rms++)
            check_forward((struct norm_case){ .rms = rms,
                                              .rows = 9,
                                              .cols = lengths[i],
                                              .dtype = FSDP_F32,
                                              .bias = !rms && i % 2 == 0,
                                              .residual = i % 2 });
}

/* The mask is the CPU's, and the sum has the bits of the two operations one after the other. */
Test(emulated_layer_norm, the_sums_second_term_is_dropped_as_on_the_cpu)
{
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int v = 0; v < 4; v++)
            check_forward((struct norm_case){ .rms = v / 2,
                                              .rows = 5,
                                              .cols = widths[i],
                                              .dtype = v % 2 ? FSDP_BF16 : FSDP_F32,
                                              .residual = true,
                                              .dropout = { 0.3f, rng_key(9, "dropout:test"), 1ull << 33 } });
}

/* As the plan has it where nothing else wants `a`: the sum lies there. */
Test(emulated_layer_norm, the_sum_may_lie_where_a_term_lay)
{
    enum { ROWS = 5, COLS = 72 };

    for (int v = 0; v < 8; v++) {
        const enum fsdp_dtype dtype = v & 1 ? FSDP_BF16 : FSDP_F32;
        const struct dropout dropout = { v & 2 ? 0.4f : 0, 3, 11 };
        struct operand a = operand_random(dtype, ROWS * COLS, 1, 1.0f),
                       b = operand_random(dtype, ROWS * COLS, 2, 1.0f),
                       weight = operand_random(dtype, COLS, 3, 1.0f), y = operand_empty(dtype, ROWS * COLS),
                       rstd = operand_empty(FSDP_F32, ROWS), sum = operand_empty(dtype, ROWS * COLS),
                       want = operand_empty(dtype, ROWS * COLS);
        struct numerics_add_norm norm = { a.data, b.data, &dropout,  sum.data, want.data, weight.data,
                                          NULL,   NULL,   rstd.data, ROWS,     COLS,      1e-5f };

        cr_assert_eq(kernel_add_rms_norm(NULL, &norm, dtype), 0);
        norm.x = v & 4 ? a.data : b.data;
        norm.y = y.data;
        cr_assert_eq(kernel_add_rms_norm(NULL, &norm, dtype), 0);
        cr_assert_arr_eq(norm.x, sum.data, ROWS * COLS * fsdp_dtype_size(dtype));
        cr_assert_arr_eq(y.data, want.data, ROWS * COLS * fsdp_dtype_size(dtype));
    }
}

Test(emulated_layer_norm, nothing_to_do_queues_nothing)
{
    float x = 1, y = 2;

    cr_assert_eq(kernel_layer_norm(NULL, &x, &x, NULL, &y, &y, &y, 0, 8, 1e-5f, FSDP_F32), 0);
    cr_assert_eq(kernel_layer_norm(NULL, &x, &x, NULL, &y, &y, &y, 1, 1, 1e-5f, FSDP_I32), 1);
    cr_assert_float_eq(y, 2, 0);
}
