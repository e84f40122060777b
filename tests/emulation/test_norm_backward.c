#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/emulation/cases.h"
#include "tests/emulation/emulate.h"

TestSuite(emulated_norm_backward, .fini = cases_end);

struct gradient_case {
    size_t rows, cols;
    enum fsdp_dtype dtype, param_dtype;
    bool rms, accumulate;
    struct operand dy, x, weight, mean, rstd, dx, dweight, dbias;
    void *scratch;
};

static int run_gradient(void *context)
{
    struct gradient_case *c = context;
    const struct numerics_norm_backward args = {
        .dtype = c->dtype,
        .dy = c->dy.data,
        .x = c->x.data,
        .weight = c->weight.data,
        .mean = c->rms ? NULL : c->mean.data,
        .rstd = c->rstd.data,
        .dx = c->dx.data,
        .accumulate_dx = c->accumulate,
        .dweight = c->dweight.data,
        .dbias = c->rms ? NULL : c->dbias.data,
        .dweight_dtype = c->param_dtype,
        .dbias_dtype = c->param_dtype,
        .accumulate_dweight = c->accumulate,
        .accumulate_dbias = c->accumulate,
        .rows = c->rows,
        .cols = c->cols,
    };

    return kernel_norm_backward(NULL, &args, emulate_max_shared_bytes, c->scratch);
}

static void check_gradient(struct gradient_case c)
{
    const size_t n = c.rows * c.cols;
    double scale, sums;
    char what[100];

    snprintf(what, sizeof what, "%s (%zu, %zu) %s, gradients %s%s", c.rms ? "rms" : "layer", c.rows, c.cols,
             fsdp_dtype_name(c.dtype), fsdp_dtype_name(c.param_dtype), c.accumulate ? ", added" : "");
    c.dy = operand_random(c.dtype, n, 1, 1.0f);
    c.x = operand_random(c.dtype, n, 2, 1.5f);
    c.weight = operand_random(c.dtype, c.cols, 3, 1.0f);
    c.mean = operand_empty(FSDP_F32, c.rows);
    c.rstd = operand_empty(FSDP_F32, c.rows);
    for (size_t i = 0; i < c.rows; i++) {
        ((float *)c.mean.data)[i] = 0.1f * (float)(i % 7);
        ((float *)c.rstd.data)[i] = 0.5f + 0.1f * (float)(i % 5);
    }
    operand_read(&c.mean);
    operand_read(&c.rstd);
    c.dx = operand_random(c.dtype, n, 4, 1.0f);
    c.dweight = operand_random(c.param_dtype, c.cols, 5, 1.0f);
    c.dbias = operand_random(c.param_dtype, c.cols, 6, 1.0f);
    c.scratch = case_bytes(cuda_norm_backward_bytes(c.rows, c.cols));

    under_schedules(run_gradient, &c, &c.dx, &c.dweight, &c.dbias, NULL);

    op_norm_backward(OP_REF, NULL, c.dy.values, c.x.values, c.weight.values, c.rms ? NULL : c.mean.values,
                     c.rstd.values, c.dx.expected, c.accumulate, c.dweight.expected,
                     c.rms ? NULL : c.dbias.expected, c.accumulate, NULL, c.rows, c.cols);
    scale = 1 + largest_of(c.dy.values, n) * largest_of(c.weight.values, c.cols) *
                    (1 + largest_of(c.x.values, n));
    expect_close(&c.dx, 16 * (double)roundoff(c.dtype) * (largest_of(c.dx.expected, n) / 8 + 0.01 * scale),
                 what);
    /*
     * Sums of `rows` terms: their roundings in float32 on the way, one in the parameters' dtype at the end.
     */
    sums = 16 * (double)roundoff(FSDP_F32) * scale * (double)c.rows;
    expect_close(&c.dweight, sums + (double)roundoff(c.param_dtype) * largest_of(c.dweight.expected, c.cols),
                 what);
    expect_close(&c.dbias, sums + (double)roundoff(c.param_dtype) * largest_of(c.dbias.expected, c.cols),
                 what);
    cases_end();
}

Test(emulated_norm_backward, is_refs_for_odd_shapes_both_dtypes_and_both_norms)
{
    static const size_t shapes[][2] = { { 1, 1 }, { 3, 7 }, { 5, 64 }, { 9, 100 }, { 4, 257 }, { 2, 520 } };

    for (size_t v = 0; v < 6 * 12; v++)
        check_gradient((struct gradient_case){ .rows = shapes[v % 6][0],
                                               .cols = shapes[v % 6][1],
                                               .dtype = v / 6 % 2 ? FSDP_BF16 : FSDP_F32,
                                               .param_dtype = v / 12 % 2 && v < 48 ? FSDP_BF16 : FSDP_F32,
                                               .rms = v >= 48,
                                               .accumulate = v < 48 ? v / 24 % 2 : v / 12 % 2 });
}

/* More rows than the 1024 warps or 256 blocks that there are up to 16,384 rows, so that each owns several. */
Test(emulated_norm_backward, many_rows)
{
    check_gradient(
        (struct gradient_case){ .rows = 1100, .cols = 8, .dtype = FSDP_F32, .param_dtype = FSDP_F32 });
    check_gradient(
        (struct gradient_case){ .rows = 300, .cols = 2049, .dtype = FSDP_BF16, .param_dtype = FSDP_F32 });
}

/*
 * A device whose blocks may have less than is asked for on others keeps less there, with the same result: see
 * check_launch().
 */
Test(emulated_norm_backward, asks_for_no_more_shared_memory_than_the_device_has)
{
    static const size_t cols[] = { 2048, 3080, 13000 };

    emulate_max_shared_bytes = CUDA_LEAST_SHARED_BYTES;
    for (size_t v = 0; v < 3; v++)
        check_gradient(
            (struct gradient_case){ .rows = 3, .cols = cols[v], .dtype = FSDP_F32, .param_dtype = FSDP_F32 });
}

/* A block each: the row kept in shared memory, too long for that, and too long even for the sums. */
Test(emulated_norm_backward, long_rows)
{
    static const size_t cols[] = { 2050, 3080, 13000, 20500 };

    for (size_t v = 0; v < 8; v++)
        check_gradient((struct gradient_case){ .rows = 3,
                                               .cols = cols[v % 4],
                                               .dtype = v / 4 ? FSDP_BF16 : FSDP_F32,
                                               .param_dtype = FSDP_F32,
                                               .rms = v % 3 == 1,
                                               .accumulate = v % 2 });
}
