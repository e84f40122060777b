/*
 * The functions of enum numerics_function and their slopes, on vectors. To add one, write both functions of
 * one vector and add a FUNCTION line and a row of the table.
 */
#include "shard_runtime/numerics/isa/kernels.h"
#include "shard_runtime/numerics/isa/vec_math.h"

/*
 * GELU, Hendrycks and Gimpel, 2016: x Phi(x), exact. The tail is computed on the side where it is small, so
 * that large negative inputs keep their relative accuracy.
 */
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

/*
 * s(z), the logistic function, computed from *bell = exp(-|z|), so that large negative z keep their relative
 * accuracy; *rest = 1 / (1 + *bell). Its slope s(z) (1 - s(z)) is bell rest^2.
 */
static inline vf logistic(vf z, vf *bell, vf *rest)
{
    *bell = vf_exp(-vf_abs(z));
    *rest = 1.0f / (1.0f + *bell);
    return vf_select(z < 0.0f, *bell * *rest, *rest);
}

/*
 * GELU by tanh, the approximation of Hendrycks and Gimpel, 2016. It is GPT-2's activation:
 *   y = x/2 (1 + tanh(u)) = x s(z),  u = sqrt(2/pi) (x + 0.044715 x^3),  z = 2 u.
 */
static const float two_c = 1.59576912f;         /* 2 sqrt(2/pi) */
static const float two_c_cubic = 0.0713548163f; /* times 0.044715 */

static inline vf tanh_gate(vf x, vf *bell, vf *rest)
{
    return logistic(x * vf_fma(x * x, vf_set(two_c_cubic), vf_set(two_c)), bell, rest);
}

static inline vf gelu_tanh(vf x)
{
    vf bell, rest;

    return x * tanh_gate(x, &bell, &rest);
}

/*
 * Returns s + x s (1 - s) dz/dx. The square of x is limited, so that it is not infinite: 0 * infinity would
 * be NaN. For such x, s (1 - s) is 0, so the limit changes no result.
 */
static inline vf gelu_tanh_slope(vf x)
{
    const vf large = vf_set(1e6f);
    vf bell, rest, square = x * x;
    const vf s = tanh_gate(x, &bell, &rest);

    square = vf_select(square > large, large, square);
    return vf_fma(x * bell * rest * rest, vf_fma(square, vf_set(3 * two_c_cubic), vf_set(two_c)), s);
}

/* SiLU: x s(x), Elfwing, Uchibe and Doya, 2017; its slope is s + x s (1 - s). */
static inline vf silu(vf x)
{
    vf bell, rest;

    return x * logistic(x, &bell, &rest);
}

static inline vf silu_slope(vf x)
{
    vf bell, rest;
    const vf s = logistic(x, &bell, &rest);

    return vf_fma(x * bell * rest, rest, s);
}

/*
 * y[i] = f(x[i]), and dx[i] = dy[i] slope(x[i]). Where these are called `f` and `slope` are constants, so
 * that they become part of the loop.
 */
static inline __attribute__((always_inline)) void map(vf (*f)(vf), const float *x, float *y, size_t n)
{
    size_t i = 0;

    for (; i + VL <= n; i += VL)
        vf_store(y + i, f(vf_load(x + i)));
    if (i < n)
        vf_store_part(y + i, f(vf_load_part(x + i, n - i, 0)), n - i);
}

static inline __attribute__((always_inline)) void map_backward(vf (*slope)(vf), const float *dy,
                                                               const float *x, float *dx, size_t n)
{
    size_t i = 0;

    for (; i + VL <= n; i += VL)
        vf_store(dx + i, vf_load(dy + i) * slope(vf_load(x + i)));
    if (i < n)
        vf_store_part(dx + i, vf_load_part(dy + i, n - i, 0) * slope(vf_load_part(x + i, n - i, 0)), n - i);
}

#define FUNCTION(name)                                                                                       \
    static void name##_forward(const float *x, float *y, size_t n)                                           \
    {                                                                                                        \
        map(name, x, y, n);                                                                                  \
    }                                                                                                        \
    static void name##_backward(const float *dy, const float *x, float *dx, size_t n)                        \
    {                                                                                                        \
        map_backward(name##_slope, dy, x, dx, n);                                                            \
    }

FUNCTION(gelu)
FUNCTION(gelu_tanh)
FUNCTION(silu)

const struct row_activation ROW(activations)[NUMERICS_N_FUNCTIONS] = {
    [NUMERICS_GELU] = { gelu_forward, gelu_backward },
    [NUMERICS_GELU_TANH] = { gelu_tanh_forward, gelu_tanh_backward },
    [NUMERICS_SILU] = { silu_forward, silu_backward },
};
