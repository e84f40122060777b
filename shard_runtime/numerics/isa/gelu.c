/*
 * GELU, Hendrycks and Gimpel, 2016: x Phi(x), exact. The tail is computed on the side where it is small, so
 * that large negative inputs keep their relative accuracy.
 */
#include "shard_runtime/numerics/isa/kernels.h"
#include "shard_runtime/numerics/isa/map.h"
#include "shard_runtime/numerics/isa/vec_math.h"

static inline vf normal_cdf(vf x, vf *bell)
{
    const vf tail = vf_normal_tail(vf_abs(x), bell);

    return vf_select(x < 0.0f, tail, 1.0f - tail);
}

static inline vf gelu(vf x)
{
    vf bell;

    return x * normal_cdf(x, &bell);
}

/* Phi(x) + x phi(x), the density phi being bell / sqrt(2 pi). */
static inline vf gelu_slope(vf x)
{
    vf bell;
    const vf cdf = normal_cdf(x, &bell);

    return vf_fma(x * 0.398942280f, bell, cdf);
}

void row_gelu(const float *x, float *y, size_t n)
{
    map(gelu, x, y, n);
}

void row_gelu_backward(const float *dy, const float *x, float *dx, size_t n)
{
    map_backward(gelu_slope, dy, x, dx, n);
}
