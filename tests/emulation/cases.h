/*
 * What the kernels' tests share: operands of either dtype in buffers that end where they should, runs under every
 * schedule, comparison with the ref row. Everything is freed by cases_end(), a suite's .fini,
 * which fails a test that took more than a second of CPU time.
 */
#ifndef EMULATION_CASES_H
#define EMULATION_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>

#include "shard_runtime/cuda/kernels/kernels.h"
#include "shard_runtime/numerics/ref.h"

/* A tensor: what the kernel sees, and its values for the reference. */
struct operand {
    enum fsdp_dtype dtype; /* FSDP_F32 or FSDP_BF16 */
    size_t n_elems;
    void *data;    /* a buffer of its own of exactly that size, aligned to 16 */
    float *values; /* data widened to float32 */
};

/** Bytes that are freed at the end of the test, aligned to 16, filled with ff: NaN as a float. 0 bytes are legal. */
void *case_bytes(size_t size_bytes);
float *case_floats(size_t n_elems);
void cases_end(void);

/** Normal numbers of deviation `scale`, rounded to dtype. */
struct operand operand_random(enum fsdp_dtype dtype, size_t n_elems, uint64_t seed, float scale);
/** What a kernel is to write: NaN everywhere. */
struct operand operand_empty(enum fsdp_dtype dtype, size_t n_elems);
struct operand operand_copy(const struct operand *from);
/** Take `values` from data again. */
void operand_read(struct operand *operand);

/**
 * Call run(context) under the forward, the reverse and two seeded schedules. What it writes lies in `outputs`; each
 * run finds there what the first found, and must leave the same bits. Then their values are read.
 */
void under_schedules(void (*run)(void *context), void *context, struct operand **outputs, size_t n_outputs);

/** The unit roundoff. */
float roundoff(enum fsdp_dtype dtype);

/**
 * Every |got[i] - expected[i]| is at most `tolerance`, and none is NaN that is not expected to be. `what` names the case.
 */
void expect_close(const struct operand *got, const float *expected, double tolerance, const char *what);
/** The same bits, after rounding expected to got's dtype. */
void expect_exact(const struct operand *got, const float *expected, const char *what);
double largest_of(const float *values, size_t n_elems);

#endif
