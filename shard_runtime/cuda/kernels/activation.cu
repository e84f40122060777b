/*
 * The functions of enum numerics_function and their slopes. To add one, write its struct and add it to
 * by_function(). GELU is Hendrycks and Gimpel's, 2016: exact by erfc, whose lower tail keeps its digits, and
 * their form by tanh.
 */
#include <math.h>

#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

constexpr float SQRT_HALF = 0.707106781f;    /* sqrt(1 / 2) */
constexpr float DENSITY_AT_0 = 0.398942280f; /* 1 / sqrt(2 pi) */
constexpr float SQRT_2_OVER_PI = 0.797884561f;
constexpr float CUBIC = 0.044715f;

struct gelu_exact {
    __device__ static float of(float x)
    {
        return x * 0.5f * erfcf(-x * SQRT_HALF);
    }

    /* Phi(x) + x phi(x) */
    __device__ static float slope(float x)
    {
        return 0.5f * erfcf(-x * SQRT_HALF) + x * DENSITY_AT_0 * expf(-0.5f * x * x);
    }
};

struct gelu_tanh {
    /*
     * (1 + tanh(u)) / 2, computed as the logistic function of 2u, which keeps its digits where tanh is near
     * -1.
     */
    __device__ static float gate(float x)
    {
        return 1.0f / (1.0f + expf(-2.0f * SQRT_2_OVER_PI * (x + CUBIC * x * x * x)));
    }

    __device__ static float of(float x)
    {
        return x * gate(x);
    }

    __device__ static float slope(float x)
    {
        const float s = gate(x);

        return s + x * 2.0f * s * (1.0f - s) * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x);
    }
};

/* Elfwing, Uchibe and Doya, 2017. expf(-x) is infinite far below 0, and the gate then 0. */
struct silu {
    __device__ static float of(float x)
    {
        return x / (1.0f + expf(-x));
    }

    __device__ static float slope(float x)
    {
        const float s = 1.0f / (1.0f + expf(-x));

        return s + x * s * (1.0f - s);
    }
};

template <class Function, class T, int N>
__global__ void __launch_bounds__(FLAT_THREADS) activation_forward(const T *x, T *y, size_t n_elems)
{
    flat_each<N>(n_elems, [&](auto w, size_t i) {
        constexpr int M = decltype(w)::value;
        const group<T, M> in = load_group<M>(x + i);
        group<T, M> out;

        for (int k = 0; k < M; k++)
            narrow(Function::of(widen(in.at[k])), &out.at[k]);
        store_group<M>(y + i, out);
    });
}

template <class Function, class T, int N>
__global__ void __launch_bounds__(FLAT_THREADS)
    activation_gradient(const T *dy, const T *x, T *dx, size_t n_elems)
{
    flat_each<N>(n_elems, [&](auto w, size_t i) {
        constexpr int M = decltype(w)::value;
        const group<T, M> in = load_group<M>(x + i), g = load_group<M>(dy + i);
        group<T, M> out;

        for (int k = 0; k < M; k++)
            narrow(widen(g.at[k]) * Function::slope(widen(in.at[k])), &out.at[k]);
        store_group<M>(dx + i, out);
    });
}

template <class Function, class T>
int launch_forward(struct CUstream_st *stream, const T *x, T *y, size_t n_elems)
{
    if (n_elems == 0)
        return KERNEL_OK;
    if (is_packed(x) && is_packed(y))
        return LAUNCH((activation_forward<Function, T, pack<T>::N>),
                      blocks_of(n_elems, FLAT_THREADS * pack<T>::N), FLAT_THREADS, 0, stream, x, y, n_elems);
    return LAUNCH((activation_forward<Function, T, 1>), blocks_of(n_elems, FLAT_THREADS), FLAT_THREADS, 0,
                  stream, x, y, n_elems);
}

template <class Function, class T>
int launch_gradient(struct CUstream_st *stream, const T *dy, const T *x, T *dx, size_t n_elems)
{
    if (n_elems == 0)
        return KERNEL_OK;
    if (is_packed(dy) && is_packed(x) && is_packed(dx))
        return LAUNCH((activation_gradient<Function, T, pack<T>::N>),
                      blocks_of(n_elems, FLAT_THREADS * pack<T>::N), FLAT_THREADS, 0, stream, dy, x, dx,
                      n_elems);
    return LAUNCH((activation_gradient<Function, T, 1>), blocks_of(n_elems, FLAT_THREADS), FLAT_THREADS, 0,
                  stream, dy, x, dx, n_elems);
}

} // namespace

/* Call f(the struct of `function`). */
template <class F> static int by_function(enum numerics_function function, F f)
{
    switch (function) {
    case NUMERICS_GELU:
        return f(gelu_exact());
    case NUMERICS_GELU_TANH:
        return f(gelu_tanh());
    case NUMERICS_SILU:
        return f(silu());
    default:
        return KERNEL_INVALID;
    }
}

int kernel_activation(struct CUstream_st *stream, const struct numerics_activation *run)
{
    return by_dtype(run->dtype, [&](auto type) {
        using T = decltype(type);

        return by_function(run->function, [&](auto function) {
            return launch_forward<decltype(function)>(stream, static_cast<const T *>(run->x),
                                                      static_cast<T *>(run->y), run->n_elems);
        });
    });
}

int kernel_activation_backward(struct CUstream_st *stream, const struct numerics_activation_backward *run)
{
    return by_dtype(run->dtype, [&](auto type) {
        using T = decltype(type);

        return by_function(run->function, [&](auto function) {
            return launch_gradient<decltype(function)>(stream, static_cast<const T *>(run->dy),
                                                       static_cast<const T *>(run->x),
                                                       static_cast<T *>(run->dx), run->n_elems);
        });
    });
}
