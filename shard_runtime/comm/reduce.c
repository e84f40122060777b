#include "shard_runtime/comm/reduce.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"

/*
 * Elements that are summed at a time: the running sums stay in the first-level cache, and each source is read
 * once.
 */
enum { BLOCK = 1024 };

static void load_bf16(float *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_to_f32(from[i]);
}

static void store_bf16(uint16_t *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_of_f32(from[i]);
}

/*
 * The macro makes the loops of a reduction for one type of running sum. x != x is true for NaN alone, so that
 * max() returns a NaN it meets.
 */
/* NOLINTBEGIN(bugprone-macro-parentheses): a type in a declaration takes no parentheses. */
#define LOOPS(T, suffix)                                                                                     \
    static void add_##suffix(T *restrict sum, const T *restrict x, size_t n)                                 \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            sum[i] += x[i];                                                                                  \
    }                                                                                                        \
    static void max_##suffix(T *restrict sum, const T *restrict x, size_t n)                                 \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            sum[i] = ((x[i] > sum[i]) | (x[i] != x[i])) ? x[i] : sum[i];                                     \
    }                                                                                                        \
    static void combine_##suffix(T *sum, const T *x, size_t n, enum fsdp_reduce_op op)                       \
    {                                                                                                        \
        if (op == FSDP_MAX)                                                                                  \
            max_##suffix(sum, x, n);                                                                         \
        else                                                                                                 \
            add_##suffix(sum, x, n);                                                                         \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

LOOPS(float, f32)
LOOPS(double, f64)

static void combine_i64(int64_t *sum, const int64_t *x, size_t n, enum fsdp_reduce_op op)
{
    for (size_t i = 0; i < n; i++) {
        if (op == FSDP_MAX)
            sum[i] = x[i] > sum[i] ? x[i] : sum[i];
        else
            sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)x[i]);
    }
}

static void reduce_to_f32(void *out, enum fsdp_dtype out_dtype, const void *const *sources,
                          enum fsdp_dtype dtype, int n_sources, size_t first, size_t n,
                          enum fsdp_reduce_op op, int divisor)
{
    float sum[BLOCK], x[BLOCK];

    if (dtype == FSDP_BF16)
        load_bf16(sum, (const uint16_t *)sources[0] + first, n);
    else
        memcpy(sum, (const float *)sources[0] + first, n * sizeof *sum);
    for (int s = 1; s < n_sources; s++) {
        if (dtype == FSDP_BF16) {
            load_bf16(x, (const uint16_t *)sources[s] + first, n);
            combine_f32(sum, x, n, op);
        } else {
            combine_f32(sum, (const float *)sources[s] + first, n, op);
        }
    }
    if (op == FSDP_MEAN)
        for (size_t i = 0; i < n; i++)
            sum[i] /= (float)divisor;
    if (out_dtype == FSDP_BF16)
        store_bf16((uint16_t *)out + first, sum, n);
    else
        memcpy((float *)out + first, sum, n * sizeof *sum);
}

static void reduce_to_f64(double *out, const void *const *sources, int n_sources, size_t first, size_t n,
                          enum fsdp_reduce_op op, int divisor)
{
    double sum[BLOCK];

    memcpy(sum, (const double *)sources[0] + first, n * sizeof *sum);
    for (int s = 1; s < n_sources; s++)
        combine_f64(sum, (const double *)sources[s] + first, n, op);
    if (op == FSDP_MEAN)
        for (size_t i = 0; i < n; i++)
            sum[i] /= (double)divisor;
    memcpy(out + first, sum, n * sizeof *sum);
}

static void reduce_to_i64(int64_t *out, const void *const *sources, int n_sources, size_t first, size_t n,
                          enum fsdp_reduce_op op)
{
    int64_t sum[BLOCK];

    memcpy(sum, (const int64_t *)sources[0] + first, n * sizeof *sum);
    for (int s = 1; s < n_sources; s++)
        combine_i64(sum, (const int64_t *)sources[s] + first, n, op);
    memcpy(out + first, sum, n * sizeof *sum);
}

void reduce_sources(void *out, enum fsdp_dtype out_dtype, const void *const *sources, enum fsdp_dtype dtype,
                    int n_sources, size_t n_elems, enum fsdp_reduce_op op, int divisor)
{
    assert(n_sources > 0);
    for (size_t first = 0; first < n_elems; first += BLOCK) {
        const size_t n = n_elems - first < BLOCK ? n_elems - first : BLOCK;

        switch (dtype) {
        case FSDP_F32:
        case FSDP_BF16:
            reduce_to_f32(out, out_dtype, sources, dtype, n_sources, first, n, op, divisor);
            break;
        case FSDP_F64:
            reduce_to_f64(out, sources, n_sources, first, n, op, divisor);
            break;
        case FSDP_I64:
            assert(op != FSDP_MEAN);
            reduce_to_i64(out, sources, n_sources, first, n, op);
            break;
        default:
            assert(!"the public calls let no other dtype pass");
        }
    }
}
