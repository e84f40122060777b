#include <criterion/criterion.h>
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

static int run_forward(void *context)
{
    struct norm_case *c = context;
    const struct numerics_add_norm norm = { .dtype = c->dtype,
                                            .a = c->a.data,
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
        return (c->rms ? kernel_add_rms_norm : kernel_add_layer_norm)(NULL, &norm);
    if (c->rms)
        return kernel_rms_norm(NULL, norm.a, norm.weight, norm.y, norm.rstd, c->rows, c->cols, norm.eps,
                               c->dtype);
    return kernel_layer_norm(NULL, norm.a, norm.weight, norm.bias, norm.y, norm.mean, norm.rstd, c->rows,
                             c->cols, norm.eps, c->dtype);
}

static void check_forward(struct norm_case c)
{
    const size_t n = c.rows * c.cols;
    const struct operand zero = operand_random(FSDP_F32, c.cols, 0, 0.0f);
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

    under_schedules(run_forward, &c, &c.y, &c.mean, &c.rstd, &c.sum, NULL);

    if (c.residual) {
        memcpy(c.sum.expected, c.a.values, n * sizeof(float));
        op_dropout(OP_REF, NULL, c.b.values, c.sum.expected, c.rows, c.cols, &c.dropout, true);
        expect_exact(&c.sum, what);
    }
    op_norm(OP_REF, NULL, FSDP_F32, c.residual ? c.sum.values : c.a.values, c.weight.values,
            c.bias ? c.shift.values : zero.values, c.y.expected, c.rms ? NULL : c.mean.expected,
            c.rstd.expected, c.rows, c.cols, 1e-5f);
    /*
     * Sums of cols / 32 terms in float32, then one rounding to the dtype. A row of one element has no
     * variance: its rstd is 316, and multiplies the rounding of the mean. An RMSNorm leaves NaNs in the mean.
     */
    expect_close(&c.y, 8 * (double)roundoff(c.dtype) * (1 + largest_of(c.y.expected, n)), what);
    expect_close(&c.mean, 8 * (double)roundoff(FSDP_F32) * largest_of(c.a.values, n), what);
    expect_close(&c.rstd, 16 * (double)roundoff(FSDP_F32) * largest_of(c.rstd.expected, c.rows), what);
}

static const size_t widths[] = { 1, 2, 7, 8, 31, 32, 33, 64, 100, 257, 768, 1000 };

Test(emulated_layer_norm, forward_is_refs)
{
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t v = 0; v < 4; v++)
            check_forward((struct norm_case){ .rows = v / 2 ? 6 : 1,
                                              .cols = widths[i],
                                              .dtype = v % 2 ? FSDP_BF16 : FSDP_F32,
                                              .bias = true });
}

/*
 * Both norms of a sum in every dtype, and without one RMSNorm. A mask of the second term is the CPU's, and
 * the sum has the bits of the two operations one after the other.
 */
Test(emulated_layer_norm, rms_norm_and_norms_of_a_sum_are_refs)
{
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t v = 0; v < 10; v++)
            check_forward((struct norm_case){
                .rms = v / 2 % 2 == 0,
                .rows = 5,
                .cols = widths[i],
                .dtype = v % 2 ? FSDP_BF16 : FSDP_F32,
                .residual = v < 8,
                .dropout = { v < 4 ? 0.3f : 0, rng_key(9, "dropout:test"), 1ull << 33 } });
}

/*
 * Eight rows a block in shared memory, four, and rows too long for it; the last block has fewer rows than
 * warps.
 */
Test(emulated_layer_norm, rows_of_every_length_that_shared_memory_decides_on)
{
    static const size_t lengths[] = { 1200, 2000, 2001, 6000, 6001 };

    for (size_t v = 0; v < 10; v++)
        check_forward((struct norm_case){ .rms = v % 2,
                                          .rows = 9,
                                          .cols = lengths[v / 2],
                                          .dtype = FSDP_F32,
                                          .bias = v % 4 == 0,
                                          .residual = v / 2 % 2 });
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
        struct numerics_add_norm norm = { dtype,     a.data,      b.data, &dropout, sum.data,
                                          want.data, weight.data, NULL,   NULL,     rstd.data,
                                          ROWS,      COLS,        1e-5f };

        cr_assert_eq(kernel_add_rms_norm(NULL, &norm), 0);
        norm.x = v & 4 ? a.data : b.data;
        norm.y = y.data;
        cr_assert_eq(kernel_add_rms_norm(NULL, &norm), 0);
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
