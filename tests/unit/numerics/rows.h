/*
 * What the tests of the numerics table share: the rows to test, random inputs, and comparison with an oracle
 * in double. Every test runs over every row and every instruction set this CPU has.
 */
#ifndef TESTS_NUMERICS_ROWS_H
#define TESTS_NUMERICS_ROWS_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

#include "shard_runtime/numerics/numerics.h"
#include "tests/support/oracles/operations.h"

struct row_case {
    char name[16]; /* of the row */
    char isa[16];  /* FSDP_ISA; empty: not set */
    int threads;
};

/* The parameters of a ParameterizedTest over all rows. */
struct criterion_test_params row_cases(void);
/* The same without `ref`, for what only the fast rows claim. */
struct criterion_test_params fast_row_cases(void);

/* Open the row, or skip the test where this CPU lacks the instruction set. */
void row_open(struct numerics *numerics, const struct row_case *row);

/* Open the row, run the body of a test, close the row and free what random_floats() and its like gave. */
typedef void row_body(const struct row_case *row, struct numerics *numerics);
void row_run(const struct row_case *row, row_body *body);

/* Sizes around the widths of vectors, unrolled loops and blocks. */
extern const size_t odd_sizes[];
extern const size_t n_odd_sizes;

/*
 * Memory of a test over rows, which row_run() frees: n floats, normal with the given standard deviation, the
 * same for the same seed; a copy; zeros, aligned to 64.
 */
float *random_floats(uint64_t seed, size_t n, float std);
float *copy_floats(const float *x, size_t n);
void *row_zeros(size_t size_bytes);

/* n numbers rounded to bfloat16; and random numbers that bfloat16 holds, in both dtypes. */
uint16_t *narrow_of(const float *x, size_t n);
float *narrow_floats(uint64_t seed, size_t n, float std, uint16_t **narrow);
/* Every got[i] is want[i], rounded to bfloat16. */
void assert_rounded(const struct row_case *row, const char *what, const uint16_t *got, const float *want,
                    size_t n);

/*
 * What dropout multiplies element j of a row by, by its definition in numerics.h: 0, or the inverse of
 * what is kept.
 */
double dropout_factor(const struct dropout *dropout, size_t row, size_t j);

/* |got - want| <= absolute + relative * |want| for all n, with the first that fails in words. */
void assert_near(const struct row_case *row, const char *what, const float *got, const double *want, size_t n,
                 double relative, double absolute);

/* The test `name` once for each case: its body has `row` and the open `numerics`. */
#define TEST_OVER(cases, suite, name)                                                                        \
    static row_body name;                                                                                    \
    ParameterizedTestParameters(suite, name)                                                                 \
    {                                                                                                        \
        return cases();                                                                                      \
    }                                                                                                        \
    ParameterizedTest(struct row_case *row, suite, name)                                                     \
    {                                                                                                        \
        row_run(row, name);                                                                                  \
    }                                                                                                        \
    static void name(const struct row_case *row __attribute__((unused)), struct numerics *numerics)
#define ROWS_TEST(suite, name)      TEST_OVER(row_cases, suite, name)
#define FAST_ROWS_TEST(suite, name) TEST_OVER(fast_row_cases, suite, name)

#endif
