/*
 * What the kernels' tests share: operands of either dtype in buffers that end where they should, runs under
 * every schedule, comparison with the ref row. Everything is freed by cases_end(), a suite's .fini, which
 * fails a test that switched too often between emulated threads.
 */
#ifndef EMULATION_CASES_H
#define EMULATION_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>

#include "shard_runtime/cuda/kernels/kernels.h"
#include "shard_runtime/numerics/ref.h"
#include "tests/support/oracles/operations.h"

/* A tensor: what the kernel sees, and its values for the reference. */
struct operand {
    enum fsdp_dtype dtype; /* FSDP_F32 or FSDP_BF16 */
    size_t n_elems;
    void *data;      /* a buffer of its own of exactly that size, aligned to 16 */
    float *values;   /* data widened to float32 */
    size_t n_before; /* elements in front of data, which belong to somebody else: see operand_shift() */
    float *expected; /* what the reference makes of the first values; NaN where there were none */
};

/**
 * Bytes that are freed at the end of the test, aligned to 16, filled with ff: NaN as a float. 0 bytes are
 * legal.
 */
void *case_bytes(size_t size_bytes);
float *case_floats(size_t n_elems);
void cases_end(void);

/** Normal numbers of deviation `scale`, rounded to dtype. */
struct operand operand_random(enum fsdp_dtype dtype, size_t n_elems, uint64_t seed, float scale);
/** What a kernel is to write: NaN everywhere. */
struct operand operand_empty(enum fsdp_dtype dtype, size_t n_elems);
struct operand operand_copy(const struct operand *from);
/**
 * Move data by n elements, so that it is aligned to one of them only. What is in front must stay as it is.
 */
void operand_shift(struct operand *operand, size_t n_elems);
/** Take `values` from data again. */
void operand_read(struct operand *operand);

/**
 * Call run(context), which queues kernels and returns their status, under the forward, the reverse and two
 * seeded schedules. The operands after `context`, up to NULL, are what it writes: each run finds there what
 * the first found, and must leave the same bits. Then their values are read.
 */
void under_schedules(int (*run)(void *context), void *context, ...);

/** The unit roundoff. */
float roundoff(enum fsdp_dtype dtype);

/**
 * Every value is at most `tolerance` from what is expected, and NaN only where that is. `what` names the
 * case.
 */
void expect_close(const struct operand *got, double tolerance, const char *what);
/** The same bits, after rounding what is expected to got's dtype. */
void expect_exact(const struct operand *got, const char *what);
double largest_of(const float *values, size_t n_elems);

#endif
