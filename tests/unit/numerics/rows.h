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

/* Sizes around the widths of vectors, unrolled loops and blocks. */
extern const size_t odd_sizes[];
extern const size_t n_odd_sizes;

/* n floats, normal with the given standard deviation, the same for the same seed; free() ends them. */
float *random_floats(uint64_t seed, size_t n, float std);
float *copy_floats(const float *x, size_t n);

/* |got - want| <= absolute + relative * |want| for all n, with the first that fails in words. */
void assert_near(const struct row_case *row, const char *what, const float *got, const double *want, size_t n,
                 double relative, double absolute);

#define ROWS_TEST(suite, name)                                                                               \
    ParameterizedTestParameters(suite, name)                                                                 \
    {                                                                                                        \
        return row_cases();                                                                                  \
    }                                                                                                        \
    ParameterizedTest(struct row_case *row, suite, name)
#define FAST_ROWS_TEST(suite, name)                                                                          \
    ParameterizedTestParameters(suite, name)                                                                 \
    {                                                                                                        \
        return fast_row_cases();                                                                             \
    }                                                                                                        \
    ParameterizedTest(struct row_case *row, suite, name)

#endif
