/*
 * GELU by tanh, the approximation of Hendrycks and Gimpel, 2016, and GPT-2's activation:
 *   y = x/2 (1 + tanh(u)) = x s(z),  u = sqrt(2/pi) (x + 0.044715 x^3),  z = 2 u,  s the logistic function.
 * s is computed from exp(-|z|), so that large negative inputs keep their relative accuracy.
 */
#include "shard_runtime/numerics/isa/kernels.h"
#include "shard_runtime/numerics/isa/map.h"
#include "shard_runtime/numerics/isa/vec_math.h"

static const float two_c = 1.59576912f;         /* 2 sqrt(2/pi) */
static const float two_c_cubic = 0.0713548163f; /* times 0.044715 */

/* s(z); *bell = exp(-|z|), *rest = 1 / (1 + *bell). */
static inline vf logistic(vf x, vf *bell, vf *rest)
{
    const vf square = x * x;
    const vf z = x * vf_fma(square, vf_set(two_c_cubic), vf_set(two_c));

    *bell = vf_exp(-vf_abs(z));
    *rest = 1.0f / (1.0f + *bell);
    return vf_select(z < 0.0f, *bell * *rest, *rest);
}

static inline vf gelu_tanh(vf x)
{
    vf bell, rest;

    return x * logistic(x, &bell, &rest);
}

/* s + x s (1 - s) dz/dx; s (1 - s) = bell rest^2 is 0 long before the square is cut, which keeps 0 * inf out. */
static inline vf gelu_tanh_slope(vf x)
{
    const vf large = vf_set(1e6f);
    vf bell, rest, square = x * x;
    const vf s = logistic(x, &bell, &rest);

    square = vf_select(square > large, large, square);
    return vf_fma(x * bell * rest * rest, vf_fma(square, vf_set(3 * two_c_cubic), vf_set(two_c)), s);
}

void row_gelu_tanh(const float *x, float *y, size_t n)
{
    map(gelu_tanh, x, y, n);
}

void row_gelu_tanh_backward(const float *dy, const float *x, float *dx, size_t n)
{
    map_backward(gelu_tanh_slope, dy, x, dx, n);
}
