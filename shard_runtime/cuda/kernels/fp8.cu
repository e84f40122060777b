/*
 * float8 e4m3 (Micikevicius et al., "FP8 formats for deep learning", 2022). It has 1 sign bit, 4 exponent
 * bits of bias 7, and 3 bits of mantissa. There is no infinity, NaN is 7f and ff, the largest value is 448.
 * Converted by whole numbers, the same bits on every GPU and, as core/e4m3.h has it, on the host. The scale
 * of a tensor is taken from its largest size wherever it is needed.
 */
#include <math.h>

#include "shard_runtime/cuda/kernels/reduce.h"
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

constexpr float E4M3_LARGEST = 448.0f;
constexpr float SMALLEST_SCALE = 0x1p-100f;
constexpr unsigned INFINITY_BITS = 0x7f800000u, NAN_BITS = 0x7fc00000u;
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
    /* rounds the 20 bits that are dropped, ties to even; a carry moves on into the exponent */
    magnitude = ((bits & 0x7fffffffu) + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
    return static_cast<uint8_t>(sign | (magnitude - ((127u - 7u) << 3)));
}

/* Of a code that is no NaN. */
__device__ float e4m3_value(uint8_t code)
{
    const unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
    float size;

    if (exponent == 0)
        size = static_cast<float>(mantissa) * 0.001953125f; /* 2^-9 */
    else
        size = float_of((exponent + 127u - 7u) << 23 | mantissa << 20);
    return (code & 0x80u) != 0 ? -size : size;
}

/*
 * The bits of sizes, taken as whole numbers, are in the order of the floats; infinity and every NaN become
 * infinity. So the order of atomics shows in no bit, and a maximum over ranks, which may skip a NaN, loses
 * nothing.
 */
template <class T>
__global__ void __launch_bounds__(FLAT_THREADS) largest_size(const T *x, size_t n_elems, float *amax)
{
    const size_t step = static_cast<size_t>(gridDim.x) * FLAT_THREADS;
    unsigned largest = 0;

    for (size_t i = static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x; i < n_elems; i += step) {
        const unsigned size = bits_of(widen(x[i])) & 0x7fffffffu;

        largest = size > largest ? size : largest;
    }
    largest = largest > INFINITY_BITS ? INFINITY_BITS : largest;
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
        const unsigned other = warp_xor(largest, mask);

        largest = other > largest ? other : largest;
    }
    if (threadIdx.x % WARP == 0)
        atomic_max(reinterpret_cast<unsigned *>(amax), largest);
}

__device__ __forceinline__ float scale_of(float amax)
{
    const float scale = amax / E4M3_LARGEST;

    return scale > SMALLEST_SCALE ? scale : SMALLEST_SCALE;
}

/* Writes the one quiet NaN, whatever NaN the arithmetic or a conversion on this machine would give. */
__device__ __forceinline__ void store_nan(float *to)
{
    *to = float_of(NAN_BITS);
}

__device__ __forceinline__ void store_nan(bf16 *to)
{
    to->bits = static_cast<uint16_t>(NAN_BITS >> 16);
}

template <class T>
__global__ void __launch_bounds__(FLAT_THREADS)
    quantise(const T *x, size_t n_elems, const float *amax, uint8_t *out)
{
    const float scale = scale_of(*amax);
    const size_t first = (static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x) * 4;

    for (size_t i = first; i < first + 4 && i < n_elems; i++)
        out[i] = e4m3_of(widen(x[i]) / scale);
}

template <class T>
__global__ void __launch_bounds__(FLAT_THREADS)
    dequantise(const uint8_t *x, size_t n_elems, const float *amax, T *out)
{
    const float scale = scale_of(*amax);
    const bool is_finite = bits_of(*amax) < INFINITY_BITS;
    const size_t first = (static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x) * 4;

    for (size_t i = first; i < first + 4 && i < n_elems; i++) {
        if (is_finite && (x[i] & 0x7fu) != 0x7fu)
            narrow(times(e4m3_value(x[i]), scale), &out[i]);
        else
            store_nan(&out[i]);
    }
}

} // namespace

int kernel_fp8_amax(struct CUstream_st *stream, const void *x, size_t n_elems, enum fsdp_dtype dtype,
                    float *amax)
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
                        const float *amax, uint8_t *out)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        if (n_elems == 0)
            return static_cast<int>(KERNEL_OK);
        return LAUNCH(quantise<T>, blocks_of(n_elems, FLAT_THREADS * 4), FLAT_THREADS, 0, stream,
                      static_cast<const T *>(x), n_elems, amax, out);
    });
}

int kernel_fp8_dequantise(struct CUstream_st *stream, const uint8_t *x, size_t n_elems, const float *amax,
                          void *out, enum fsdp_dtype dtype)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);

        if (n_elems == 0)
            return static_cast<int>(KERNEL_OK);
        return LAUNCH(dequantise<T>, blocks_of(n_elems, FLAT_THREADS * 4), FLAT_THREADS, 0, stream, x,
                      n_elems, amax, static_cast<T *>(out));
    });
}
