#include <criterion/criterion.h>
#include <string.h>

#include "tests/emulation/cases.h"

TestSuite(emulated_column_sum, .fini = cases_end);

struct column_case {
    size_t rows, cols;
    enum fsdp_dtype dtype, out_dtype;
    bool accumulate;
    struct operand x, out;
    void *scratch;
};

static void run_column_sum(void *context)
{
    struct column_case *c = context;

    cr_assert_eq(kernel_column_sum(NULL, c->x.data, c->dtype, c->out.data, c->out_dtype, c->rows, c->cols,
                                   c->accumulate, c->scratch),
                 0);
}

Test(emulated_column_sum, is_refs)
{
    static const size_t shapes[][2] = { { 0, 5 }, { 1, 1 }, { 3, 31 }, { 130, 33 }, { 257, 3 }, { 7, 100 } };

    for (size_t v = 0; v < 6 * 8; v++) {
        struct column_case c = { .rows = shapes[v % 6][0],
                                 .cols = shapes[v % 6][1],
                                 .dtype = v / 6 % 2 ? FSDP_BF16 : FSDP_F32,
                                 .out_dtype = v / 12 % 2 ? FSDP_BF16 : FSDP_F32,
                                 .accumulate = v / 24 };
        struct operand *outputs[] = { &c.out };
        float *expected = case_floats(c.cols);

        c.x = operand_random(c.dtype, c.rows * c.cols, v, 1.0f);
        c.out = operand_random(c.out_dtype, c.cols, 1, 1.0f);
        c.scratch = case_bytes(kernel_column_sum_scratch(c.rows, c.cols));
        memcpy(expected, c.out.values, c.cols * sizeof *expected);

        under_schedules(run_column_sum, &c, outputs, 1);

        ref_column_sum(NULL, NULL, c.x.values, expected, c.rows, c.cols, c.accumulate);
        /* Both sum in double and round once: a tie may fall to either side. */
        expect_close(&c.out, expected, 2 * (double)roundoff(c.out_dtype) * largest_of(expected, c.cols),
                     "column sum");
        cases_end();
    }
}
