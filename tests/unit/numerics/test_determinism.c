#include "tests/unit/numerics/every_op.h"
#include "tests/unit/numerics/rows.h"

static void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            cr_assert(false, "%s: result %zu of %zu: %.9g and %.9g", what, i, n, (double)a[i], (double)b[i]);
}

ROWS_TEST(numerics_determinism, every_operation_gives_the_same_bits_again)
{
    float *first, *again;
    size_t n, n_again;

    first = every_op_run(numerics, &n);

    for (int run = 0; run < 3; run++) {
        again = every_op_run(numerics, &n_again);
        cr_assert(eq(sz, n, n_again));
        assert_same_bits(first, again, n, "second run");
        free(again);
    }
    free(first);
}

/* Only oneDNN's products may see the threads. */
static const struct row_case of_threads[] = {
    { "plain", "base", 2 }, { "plain", "", 2 }, { "plain", "", 3 }, { "plain", "", 7 }
};

ParameterizedTestParameters(numerics_determinism, the_number_of_threads_does_not_show)
{
    return cr_make_param_array(const struct row_case, of_threads, sizeof of_threads / sizeof *of_threads);
}

ParameterizedTest(struct row_case *row, numerics_determinism, the_number_of_threads_does_not_show)
{
    struct row_case alone = *row;
    struct numerics numerics;
    float *want, *got;
    size_t n;

    alone.threads = 1;
    row_open(&numerics, &alone);
    want = every_op_run(&numerics, &n);
    numerics_close(&numerics);

    row_open(&numerics, row);
    got = every_op_run(&numerics, &n);

    assert_same_bits(want, got, n, "threads");
    free(want);
    free(got);
    numerics_close(&numerics);
}
