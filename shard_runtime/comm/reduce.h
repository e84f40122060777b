/*
 * The arithmetic of the reductions. Sources are combined element by element in the order given. So the bits
 * depend on that order alone, not on how the data was cut into chunks. bfloat16 is summed in float32 and
 * rounded once, to nearest even, at the end. Pure.
 */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include <stddef.h>

#include <fsdp/comm.h>

/**
 * Computes out[i] = op over s of sources[s][i], in the order of s. FSDP_MEAN divides the sum by `divisor` at
 * the end.
 *
 *   out        (n_elems) of `out_dtype`; may be one of the sources when the dtypes are equal
 *   sources    (n_sources) pointers to (n_elems) of `dtype`; n_sources >= 1
 *   divisor    ranks in the whole group; used by FSDP_MEAN alone. Partial sums are taken with FSDP_SUM.
 *
 * Pairs of (dtype, out_dtype): F32 and BF16 with F32 or BF16; F64 with F64; I64 with I64 (wraps around).
 * FSDP_MAX gives NaN where any source is NaN.
 */
void reduce_sources(void *out, enum fsdp_dtype out_dtype, const void *const *sources, enum fsdp_dtype dtype,
                    int n_sources, size_t n_elems, enum fsdp_reduce_op op, int divisor);

#endif
