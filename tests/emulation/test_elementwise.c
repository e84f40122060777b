#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "tests/emulation/cases.h"

TestSuite(emulated_elementwise, .fini = cases_end);

/* Odd ends on both sides of a pack (4 or 8 elements), of a warp and of a block. */
static const size_t sizes[] = { 1, 3, 4, 7, 8, 9, 31, 33, 255, 256, 1000, 2049 };
enum { N_SIZES = sizeof sizes / sizeof *sizes };

struct flat_case {
    size_t n,
        shift; /* elements; and how many are left out in front, so that no address is a multiple of 16 */
    enum fsdp_dtype dtype;
    enum kernel_gelu form;
    struct operand a, b, out;
};

static const void *shifted(const struct flat_case *c, const struct operand *x)
{
    return (const char *)x->data + c->shift * fsdp_dtype_size(c->dtype);
}

static void *out_of(const struct flat_case *c)
{
    return (char *)c->out.data + c->shift * fsdp_dtype_size(c->dtype);
}

static void each_case(void (*check)(struct flat_case *c, const char *what))
{
    for (size_t i = 0; i < N_SIZES; i++) {
        for (size_t variant = 0; variant < 4; variant++) {
            struct flat_case c = { .n = sizes[i],
                                   .shift = variant % 2,
                                   .dtype = variant < 2 ? FSDP_F32 : FSDP_BF16 };
            char what[64];

            snprintf(what, sizeof what, "%zu %s from %zu", c.n, fsdp_dtype_name(c.dtype), c.shift);
            c.a = operand_random(c.dtype, c.n + c.shift, 1, 2.0f);
            c.b = operand_random(c.dtype, c.n + c.shift, 2, 1.0f);
            c.out = operand_empty(c.dtype, c.n + c.shift);
            check(&c, what);
            cases_end();
        }
    }
}

/* What is left out in front belongs to somebody else. */
static struct operand rest_of(const struct flat_case *c)
{
    cr_assert(c->shift == 0 || isnan(c->out.values[0]));
    return (struct operand){ .dtype = c->dtype, .n_elems = c->n, .values = c->out.values + c->shift };
}

static void run_add(void *context)
{
    struct flat_case *c = context;

    cr_assert_eq(kernel_add(NULL, shifted(c, &c->a), shifted(c, &c->b), out_of(c), c->n, c->dtype), 0);
}

static void check_add(struct flat_case *c, const char *what)
{
    struct operand *outputs[] = { &c->out }, rest;
    float *expected = case_floats(c->n);

    under_schedules(run_add, c, outputs, 1);

    ref_add(NULL, NULL, c->a.values + c->shift, c->b.values + c->shift, expected, c->n);
    rest = rest_of(c);
    expect_exact(&rest, expected, what);
}

Test(emulated_elementwise, add_is_refs_bit_for_bit)
{
    each_case(check_add);
}

static void run_gelu(void *context)
{
    struct flat_case *c = context;

    cr_assert_eq(kernel_gelu(NULL, shifted(c, &c->a), out_of(c), c->n, c->form, c->dtype), 0);
}

static void run_gelu_backward(void *context)
{
    struct flat_case *c = context;

    cr_assert_eq(
        kernel_gelu_backward(NULL, shifted(c, &c->b), shifted(c, &c->a), out_of(c), c->n, c->form, c->dtype),
        0);
}

static void check_gelu(struct flat_case *c, const char *what)
{
    struct operand *outputs[] = { &c->out }, rest;
    const float *x = c->a.values + c->shift, *dy = c->b.values + c->shift;
    float *y = case_floats(c->n), *dx = case_floats(c->n);

    for (int form = KERNEL_GELU_EXACT; form <= KERNEL_GELU_TANH; form++) {
        c->form = form;
        if (form == KERNEL_GELU_EXACT) {
            ref_gelu(NULL, NULL, x, y, c->n);
            ref_gelu_backward(NULL, NULL, dy, x, dx, c->n);
        } else {
            ref_gelu_tanh(NULL, NULL, x, y, c->n);
            ref_gelu_tanh_backward(NULL, NULL, dy, x, dx, c->n);
        }

        under_schedules(run_gelu, c, outputs, 1);
        rest = rest_of(c);
        /* erfcf and expf within 2 units of an argument that was itself rounded up to four times. */
        expect_close(&rest, y, 4 * (double)roundoff(c->dtype) * (1 + largest_of(x, c->n)), what);

        under_schedules(run_gelu_backward, c, outputs, 1);
        rest = rest_of(c);
        expect_close(&rest, dx, 16 * (double)roundoff(c->dtype) * (1 + largest_of(dy, c->n)), what);
    }
}

Test(emulated_elementwise, gelu_is_refs_in_both_forms)
{
    each_case(check_gelu);
}

Test(emulated_elementwise, gelu_keeps_its_tails)
{
    static const float x[] = { 0, -0.0f, 1e-30f, -6, -12, -40, 40, INFINITY, NAN };
    static const float forms[2][9] = { { 0, -0.0f, 5e-31f, -5.9195e-9f, 0, 0, 40, INFINITY, NAN },
                                       { 0, -0.0f, 5e-31f, -6e-10f, 0, 0, 40, INFINITY, NAN } };

    for (int form = KERNEL_GELU_EXACT; form <= KERNEL_GELU_TANH; form++) {
        float y[9];

        cr_assert_eq(kernel_gelu(NULL, x, y, 9, (enum kernel_gelu)form, FSDP_F32), 0);
        for (int i = 0; i < 9; i++)
            cr_assert(isnan(forms[form][i]) ? isnan(y[i])
                                            : y[i] == forms[form][i] || fabsf(y[i] - forms[form][i]) < 2e-9f,
                      "gelu(%g) is %g", (double)x[i], (double)y[i]);
    }
}

struct dropout_case {
    size_t rows, cols;
    enum fsdp_dtype dtype;
    struct dropout dropout;
    bool accumulate;
    struct operand x, out;
};

static void run_dropout(void *context)
{
    struct dropout_case *c = context;

    cr_assert_eq(
        kernel_dropout(NULL, c->x.data, c->out.data, c->rows, c->cols, &c->dropout, c->accumulate, c->dtype),
        0);
}

Test(emulated_elementwise, dropout_has_the_cpus_mask_bit_for_bit)
{
    static const float rates[] = { 0, 0.1f, 0.5f, 1 };
    static const size_t cols[] = { 1, 3, 4, 6, 64, 101 };

    for (size_t v = 0; v < 4 * 6 * 4; v++) {
        struct dropout_case c = { .rows = 5,
                                  .cols = cols[v % 6],
                                  .dtype = v / 24 % 2 == 0 ? FSDP_F32 : FSDP_BF16,
                                  .accumulate = v / 48 == 1,
                                  .dropout = { rates[v / 6 % 4], rng_key(9, "dropout:test"),
                                               (1ull << 33) + 5 } };
        struct operand *outputs[] = { &c.out };
        const size_t n = c.rows * c.cols;
        float *expected = case_floats(n);

        c.x = operand_random(c.dtype, n, v, 1.0f);
        c.out = operand_random(c.dtype, n, v + 100, 1.0f);
        memcpy(expected, c.out.values, n * sizeof *expected);

        under_schedules(run_dropout, &c, outputs, 1);

        ref_dropout(NULL, NULL, c.x.values, expected, c.rows, c.cols, &c.dropout, c.accumulate);
        expect_exact(&c.out, expected, "dropout");
        cases_end();
    }
}
