/*
 * Numbers as the kernels see them: elements of a dtype, 16 bytes of them at once, and float32 arithmetic that
 * is never fused. bfloat16 is the upper half of a float32, as core/bf16.h; only its conversion is here,
 * nothing computes in it.
 */
#ifndef CUDA_KERNELS_NUMBER_H
#define CUDA_KERNELS_NUMBER_H

#include <assert.h>
#include <string.h>

#include "shard_runtime/cuda/kernels/launch.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#else
#include "shard_runtime/core/bf16.h"
#endif

struct bf16 {
    uint16_t bits;
};

__device__ __forceinline__ float widen(float value)
{
    return value;
}

__device__ __forceinline__ float widen(bf16 value)
{
#ifdef __CUDACC__
    return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
#else
    return bf16_to_f32(value.bits);
#endif
}

__device__ __forceinline__ void narrow(float value, float *to)
{
    *to = value;
}

/*
 * Rounds to nearest, ties to even. A NaN stays a NaN: on the GPU it is always 7fff, on the host it keeps its
 * upper bits.
 */
__device__ __forceinline__ void narrow(float value, bf16 *to)
{
#ifdef __CUDACC__
    to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    to->bits = bf16_of_f32(value);
#endif
}

__device__ __forceinline__ unsigned bits_of(float value)
{
#ifdef __CUDACC__
    return __float_as_uint(value);
#else
    unsigned bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

__device__ __forceinline__ float float_of(unsigned bits)
{
#ifdef __CUDACC__
    return __uint_as_float(bits);
#else
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

/* exp(x) = exp2(x * LOG2_E), because the GPU has an instruction for exp2 only */
constexpr float LOG2_E = 1.44269504f;

/*
 * Products and sums that the compiler must not fuse into one operation with a single rounding, as it does
 * elsewhere.
 */
__device__ __forceinline__ float times(float a, float b)
{
#ifdef __CUDACC__
    return __fmul_rn(a, b);
#else
    return a * b; /* the host build has -ffp-contract=off */
#endif
}

__device__ __forceinline__ float plus(float a, float b)
{
#ifdef __CUDACC__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

/* Counts the device memory that a kernel moves, in the emulation. On a GPU the profiler does that. */
__device__ __forceinline__ void count_access(size_t read_bytes, size_t written_bytes)
{
#ifdef __CUDACC__
    (void)read_bytes, (void)written_bytes;
#else
    emulate_access(read_bytes, written_bytes);
#endif
}

/* 16 bytes of elements, or as many as COUNT says, read and written at once. */
template <class T, int COUNT = 16 / sizeof(T)> struct alignas(COUNT * sizeof(T)) pack {
    static constexpr int N = COUNT;
    T at[N];
};

template <int COUNT, class T> __device__ __forceinline__ pack<T, COUNT> load_pack_of(const T *from)
{
#ifdef __CUDACC__
    return *reinterpret_cast<const pack<T, COUNT> *>(from);
#else
    pack<T, COUNT> to;

    count_access(sizeof to, 0);
    assert(reinterpret_cast<uintptr_t>(from) % sizeof to == 0);
    memcpy(&to, from, sizeof to);
    return to;
#endif
}

template <class T> __device__ __forceinline__ pack<T> load_pack(const T *from)
{
    return load_pack_of<pack<T>::N>(from);
}

template <class T, int COUNT> __device__ __forceinline__ void store_pack(T *to, const pack<T, COUNT> &from)
{
#ifdef __CUDACC__
    *reinterpret_cast<pack<T, COUNT> *>(to) = from;
#else
    count_access(0, sizeof from);
    assert(reinterpret_cast<uintptr_t>(to) % sizeof from == 0);
    memcpy(to, &from, sizeof from);
#endif
}

static inline bool is_packed(const void *p)
{
    return (reinterpret_cast<uintptr_t>(p) & 15) == 0; /* NULL too: it is not read */
}

/* Call f(T()) with the type of `dtype`. */
template <class F> int by_dtype(enum fsdp_dtype dtype, F f)
{
    if (dtype == FSDP_F32)
        return f(float());
    if (dtype == FSDP_BF16)
        return f(bf16());
    return KERNEL_INVALID;
}

#endif
