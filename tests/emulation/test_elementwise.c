/* Addition, activations, dropout, sums of columns. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "tests/emulation/cases.h"

TestSuite(emulated_elementwise, .fini = cases_end);

/* Odd ends on both sides of a pack (4 or 8 elements), of a warp and of a block. */
static const size_t sizes[] = { 1, 3, 4, 7, 8, 9, 31, 33, 255, 256, 1000, 2049 };

struct flat_case {
    size_t n;
    enum fsdp_dtype dtype;
    enum numerics_function function;
    struct operand a, b, out;
};

/* Every size in both dtypes, with addresses that are multiples of 16 and ones that are not. */
static void each_case(void (*check)(struct flat_case *c, const char *what))
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t variant = 0; variant < 4; variant++) {
            struct flat_case c = { .n = sizes[i], .dtype = variant < 2 ? FSDP_F32 : FSDP_BF16 };
            char what[64];

            snprintf(what, sizeof what, "%zu %s from %zu", c.n, fsdp_dtype_name(c.dtype), variant % 2);
            c.a = operand_random(c.dtype, c.n, 1, 2.0f);
            c.b = operand_random(c.dtype, c.n, 2, 1.0f);
            c.out = operand_empty(c.dtype, c.n);
            operand_shift(&c.a, variant % 2);
            operand_shift(&c.b, variant % 2);
            operand_shift(&c.out, variant % 2);
            check(&c, what);
            cases_end();
        }
}

static int run_add(void *context)
{
    struct flat_case *c = context;

    return kernel_add(NULL, c->a.data, c->b.data, c->out.data, c->n, c->dtype);
}

static void check_add(struct flat_case *c, const char *what)
{
    under_schedules(run_add, c, &c->out, NULL);

    op_add(OP_REF, NULL, FSDP_F32, c->a.values, c->b.values, c->out.expected, c->n);
    expect_exact(&c->out, what);
}

Test(emulated_elementwise, add_is_refs_bit_for_bit)
{
    each_case(check_add);
}

static int run_activation(void *context)
{
    struct flat_case *c = context;

    return kernel_activation(
        NULL, &(struct numerics_activation){ c->dtype, c->function, c->a.data, c->out.data, c->n });
}

static int run_activation_backward(void *context)
{
    struct flat_case *c = context;
    const struct numerics_activation_backward run = { c->dtype,  c->function, c->b.data,
                                                      c->a.data, c->out.data, c->n };

    return kernel_activation_backward(NULL, &run);
}

static void check_activation(struct flat_case *c, const char *what)
{
    const float *x = c->a.values, *dy = c->b.values;
    const double unit = (double)roundoff(c->dtype);

    for (int function = 0; function < NUMERICS_N_FUNCTIONS; function++) {
        c->function = (enum numerics_function)function;
        under_schedules(run_activation, c, &c->out, NULL);
        op_activation(OP_REF, NULL, FSDP_F32, c->function, x, c->out.expected, c->n);
        /* erfcf and expf within 2 units of an argument that was itself rounded up to four times. */
        expect_close(&c->out, 4 * unit * (1 + largest_of(x, c->n)), what);

        under_schedules(run_activation_backward, c, &c->out, NULL);
        op_activation_backward(OP_REF, NULL, FSDP_F32, c->function, dy, x, c->out.expected, c->n);
        expect_close(&c->out, 16 * unit * (1 + largest_of(dy, c->n)), what);
    }
}

Test(emulated_elementwise, every_function_is_refs)
{
    each_case(check_activation);
}

Test(emulated_elementwise, functions_keep_their_tails)
{
    static const float x[] = { 0, -0.0f, 1e-30f, -6, -12, -40, 40, INFINITY, NAN };
    static const float forms[NUMERICS_N_FUNCTIONS][9] = {
        { 0, -0.0f, 5e-31f, -5.9195e-9f, 0, 0, 40, INFINITY, NAN },
        { 0, -0.0f, 5e-31f, -6e-10f, 0, 0, 40, INFINITY, NAN },
        { 0, -0.0f, 5e-31f, -0.0148357389f, -7.3730103e-5f, 0, 40, INFINITY, NAN },
    };

    for (int form = 0; form < NUMERICS_N_FUNCTIONS; form++) {
        float y[9];
        const struct numerics_activation run = { FSDP_F32, (enum numerics_function)form, x, y, 9 };

        cr_assert_eq(kernel_activation(NULL, &run), 0);
        for (int i = 0; i < 9; i++)
            cr_assert(isnan(forms[form][i]) ? isnan(y[i])
                                            : y[i] == forms[form][i] || fabsf(y[i] - forms[form][i]) < 2e-9f,
                      "function %d of %g is %g", form, (double)x[i], (double)y[i]);
    }
}

struct rows_case {
    size_t rows, cols;
    struct dropout dropout;
    bool accumulate;
    struct operand x, out;
    void *scratch;
};

static int run_dropout(void *context)
{
    struct rows_case *c = context;

    return kernel_dropout(NULL, c->x.data, c->out.data, c->rows, c->cols, &c->dropout, c->accumulate,
                          c->x.dtype);
}

Test(emulated_elementwise, dropout_has_the_cpus_mask_bit_for_bit)
{
    static const float rates[] = { 0, 0.1f, 0.5f, 1 };
    static const size_t cols[] = { 1, 3, 4, 6, 64, 101 };

    for (size_t v = 0; v < 4 * 6 * 4; v++) {
        struct rows_case c = { .rows = 5,
                               .cols = cols[v % 6],
                               .accumulate = v / 48 == 1,
                               .dropout = { rates[v / 6 % 4], rng_key(9, "dropout:test"),
                                            (1ull << 33) + 5 } };
        const enum fsdp_dtype dtype = v / 24 % 2 == 0 ? FSDP_F32 : FSDP_BF16;

        c.x = operand_random(dtype, c.rows * c.cols, v, 1.0f);
        c.out = operand_random(dtype, c.rows * c.cols, v + 100, 1.0f);

        under_schedules(run_dropout, &c, &c.out, NULL);

        op_dropout(OP_REF, NULL, c.x.values, c.out.expected, c.rows, c.cols, &c.dropout, c.accumulate);
        expect_exact(&c.out, "dropout");
        cases_end();
    }
}

static int run_column_sum(void *context)
{
    struct rows_case *c = context;

    return kernel_column_sum(NULL, c->x.data, c->x.dtype, c->out.data, c->out.dtype, c->rows, c->cols,
                             c->accumulate, c->scratch);
}

Test(emulated_elementwise, column_sum_is_refs)
{
    static const size_t shapes[][2] = { { 0, 5 }, { 1, 1 }, { 3, 31 }, { 130, 33 }, { 257, 3 }, { 7, 100 } };

    for (size_t v = 0; v < 6 * 8; v++) {
        struct rows_case c = { .rows = shapes[v % 6][0], .cols = shapes[v % 6][1], .accumulate = v / 24 };

        c.x = operand_random(v / 6 % 2 ? FSDP_BF16 : FSDP_F32, c.rows * c.cols, v, 1.0f);
        c.out = operand_random(v / 12 % 2 ? FSDP_BF16 : FSDP_F32, c.cols, 1, 1.0f);
        c.scratch = case_bytes(cuda_column_sum_bytes(c.rows, c.cols));

        under_schedules(run_column_sum, &c, &c.out, NULL);

        op_column_sum(OP_REF, NULL, FSDP_F32, c.x.values, FSDP_F32, c.out.expected, c.rows, c.cols,
                      c.accumulate);
        /* Both sum in double and round once: a tie may fall to either side. */
        expect_close(&c.out, 2 * (double)roundoff(c.out.dtype) * largest_of(c.out.expected, c.cols),
                     "column sum");
        cases_end();
    }
}
