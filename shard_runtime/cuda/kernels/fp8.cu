/*
 * float8 e4m3 (Micikevicius et al., "FP8 formats for deep learning", 2022): 1 sign, 4 exponent bits of bias 7, 3 of
 * mantissa, no infinity, NaN is 7f and ff, largest 448. Converted by whole numbers, the same on every GPU and host.
 */
#include <math.h>

#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

constexpr float E4M3_LARGEST = 448.0f;
constexpr unsigned AMAX_BLOCKS = 512;

__device__ uint8_t e4m3_of(float value)
{
    const unsigned bits = bits_of(value), sign = bits >> 24 & 0x80u;
    const float size = fabsf(value);
    unsigned magnitude;

    if (isnan(value))
        return static_cast<uint8_t>(sign | 0x7fu);
    if (size >= E4M3_LARGEST)
        return static_cast<uint8_t>(sign | 0x7eu);
    if (size < 0.015625f) /* below 2^-6 numbers are multiples of 2^-9, and 8 of them are 2^-6's own code */
        return static_cast<uint8_t>(sign | static_cast<unsigned>(rintf(size * 512.0f)));
    /* Ties to even on the 20 bits that go; a carry moves on into the exponent. */
    magnitude = ((bits & 0x7fffffffu) + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
    return static_cast<uint8_t>(sign | (magnitude - ((127u - 7u) << 3)));
}

__device__ float e4m3_value(uint8_t code)
{
    const unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
    float size;

    if ((code & 0x7fu) == 0x7fu)
        size = float_of(0x7fc00000u);
    else if (exponent == 0)
        size = static_cast<float>(mantissa) * 0.001953125f; /* 2^-9 */
    else
        size = float_of((exponent + 127u - 7u) << 23 | mantissa << 20);
    return (code & 0x80u) != 0 ? -size : size;
}

/* As whole numbers, sizes are in the floats' order, and a NaN is above all: the order of atomics shows in no bit. */
template <class T>
__global__ void __launch_bounds__(FLAT_THREADS) largest_size(const T *x, size_t n_elems, float *amax)
{
    const size_t step = static_cast<size_t>(gridDim.x) * FLAT_THREADS;
    unsigned largest = 0;

    for (size_t i = static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x; i < n_elems; i += step) {
        const unsigned size = bits_of(widen(x[i])) & 0x7fffffffu;

        largest = size > largest ? size : largest;
    }
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
        const unsigned other = warp_xor(largest, mask);

        largest = other > largest ? other : largest;
    }
    if (threadIdx.x % WARP == 0)
        atomic_max(reinterpret_cast<unsigned *>(amax), largest);
}

__device__ __forceinline__ float scale_of(float amax)
{
    return amax == 0.0f ? 1.0f : amax / E4M3_LARGEST;
}

template <class T>
__global__ void __launch_bounds__(FLAT_THREADS) quantise(const T *x, size_t n_elems, const float *amax, float *scale,
                                                         uint8_t *out)
{
    const float unit = scale_of(*amax);
    const size_t first = (static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x) * 4;

    if (first == 0)
        *scale = unit;
    for (size_t i = first; i < first + 4 && i < n_elems; i++)
        out[i] = e4m3_of(widen(x[i]) / unit);
}

template <class T>
__global__ void __launch_bounds__(FLAT_THREADS) dequantise(const uint8_t *x, size_t n_elems, const float *scale, T *out)
{
    const size_t first = (static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x) * 4;

    for (size_t i = first; i < first + 4 && i < n_elems; i++)
        narrow(times(e4m3_value(x[i]), *scale), &out[i]);
}

} // namespace

int kernel_fp8_amax(struct CUstream_st *stream, const void *x, size_t n_elems, enum fsdp_dtype dtype, float *amax)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);
        const unsigned blocks = blocks_of(n_elems, FLAT_THREADS * 8);

        if (n_elems == 0)
            return static_cast<int>(KERNEL_OK);
        return LAUNCH(largest_size<T>, blocks < AMAX_BLOCKS ? blocks : AMAX_BLOCKS, FLAT_THREADS, 0, stream,
                      static_cast<const T *>(x), n_elems, amax);
    });
}

int kernel_fp8_quantise(struct CUstream_st *stream, const void *x, size_t n_elems, enum fsdp_dtype dtype,
                        const float *amax, float *scale, uint8_t *out)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        /* Without an element, the scale is still wanted. */
        return LAUNCH(quantise<T>, blocks_of(n_elems > 0 ? n_elems : 1, FLAT_THREADS * 4), FLAT_THREADS, 0, stream,
                      static_cast<const T *>(x), n_elems, amax, scale, out);
    });
}

int kernel_fp8_dequantise(struct CUstream_st *stream, const uint8_t *x, size_t n_elems, const float *scale, void *out,
                          enum fsdp_dtype dtype)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        if (n_elems == 0)
            return static_cast<int>(KERNEL_OK);
        return LAUNCH(dequantise<T>, blocks_of(n_elems, FLAT_THREADS * 4), FLAT_THREADS, 0, stream, x, n_elems, scale,
                      static_cast<T *>(out));
    });
}
