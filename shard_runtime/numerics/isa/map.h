/*
 * A function of one vector over whole arrays, and a slope times what comes from above: the two loops of an activation. The
 * function is a constant where they are called, so that it is a part of the loop and not called.
 */
#ifndef NUMERICS_ISA_MAP_H
#define NUMERICS_ISA_MAP_H

#include "shard_runtime/numerics/isa/vec.h"

/* y[i] = f(x[i]) */
static inline __attribute__((always_inline)) void map(vf (*f)(vf), const float *x, float *y, size_t n)
{
    size_t i = 0;

    for (; i + VL <= n; i += VL)
        vf_store(y + i, f(vf_load(x + i)));
    if (i < n)
        vf_store_part(y + i, f(vf_load_part(x + i, n - i, 0)), n - i);
}

/* dx[i] = dy[i] slope(x[i]) */
static inline __attribute__((always_inline)) void map_backward(vf (*slope)(vf), const float *dy,
                                                               const float *x, float *dx, size_t n)
{
    size_t i = 0;

    for (; i + VL <= n; i += VL)
        vf_store(dx + i, vf_load(dy + i) * slope(vf_load(x + i)));
    if (i < n)
        vf_store_part(dx + i, vf_load_part(dy + i, n - i, 0) * slope(vf_load_part(x + i, n - i, 0)), n - i);
}

#endif
