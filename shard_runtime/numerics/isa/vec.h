/*
 * One vector type for every instruction set: VL floats, as wide as the registers of the set that this file is
 * compiled for (-DISA=base|avx2|avx512). Arithmetic is the compilers' vector extension; what it has no words
 * for (partial loads, fused multiply-add, widening products) is here, once a set. Files of numerics/isa only.
 */
#ifndef NUMERICS_ISA_VEC_H
#define NUMERICS_ISA_VEC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { VL = 16 };
#elif defined(__AVX2__)
enum { VL = 8 };
#else
enum { VL = 4 };
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef uint64_t vu64 __attribute__((vector_size(4 * VL)));

static inline vf vf_set(float x)
{
    return (vf){ 0 } + x;
}

static inline vu vu_set(uint32_t x)
{
    return (vu){ 0 } + x;
}

static inline vf vf_load(const float *p)
{
    vf x;

    memcpy(&x, p, sizeof x);
    return x;
}

static inline void vf_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}

/* 0, 1, 2, ... */
static inline vu vu_iota(void)
{
    vu x = { 0 };

    for (uint32_t lane = 0; lane < VL; lane++)
        x[lane] = lane;
    return x;
}

/* Selects lane by lane: where all bits of `where` are set, `yes`; where none is set, `no`. */
static inline vf vf_select(vi where, vf yes, vf no)
{
    return (vf)(((vi)yes & where) | ((vi)no & ~where));
}

static inline vf vf_abs(vf x)
{
    return (vf)((vi)x & INT32_MAX);
}

/* Returns a where it is larger, else b. So a NaN in b stays, and a NaN in a does not. */
static inline vf vf_max(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vf_select(a > b, a, b);
#endif
}

/* The first n < VL elements; `fill` in the other lanes. Nothing beyond them is read. */
static inline vf vf_load_part(const float *p, size_t n, float fill)
{
#if defined(__AVX512F__)
    return (vf)_mm512_mask_loadu_ps((__m512)vf_set(fill), (__mmask16)((1u << n) - 1), p);
#elif defined(__AVX2__)
    const vi mask = (vi)vu_iota() < (int32_t)n;

    return vf_select(mask, (vf)_mm256_maskload_ps(p, (__m256i)mask), vf_set(fill));
#else
    vf x = vf_set(fill);

    for (size_t lane = 0; lane < n; lane++)
        x[lane] = p[lane];
    return x;
#endif
}

/* The first n < VL elements. Nothing beyond them is written. */
static inline void vf_store_part(float *p, vf x, size_t n)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(p, (__m256i)((vi)vu_iota() < (int32_t)n), (__m256)x);
#else
    for (size_t lane = 0; lane < n; lane++)
        p[lane] = x[lane];
#endif
}

/* a * b + c, rounded only once if the instruction set has such an instruction */
static inline vf vf_fma(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* Sum of the lanes, in double: lane i and lane i + VL / 2 first. */
static inline double vf_sum(vf x)
{
#if defined(__AVX512F__)
    const __m512d halves = _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x)) +
                           _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)x, 1)));
    const __m256d quarters = _mm512_castpd512_pd256(halves) + _mm512_extractf64x4_pd(halves, 1);
    const __m128d pair = _mm256_castpd256_pd128(quarters) + _mm256_extractf128_pd(quarters, 1);

    return pair[0] + pair[1];
#elif defined(__AVX2__)
    const __m256d halves = _mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x)) +
                           _mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1));
    const __m128d pair = _mm256_castpd256_pd128(halves) + _mm256_extractf128_pd(halves, 1);

    return pair[0] + pair[1];
#else
    return ((double)x[0] + (double)x[2]) + ((double)x[1] + (double)x[3]);
#endif
}

static inline float vf_largest(vf x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float largest = x[0];

    for (int lane = 1; lane < VL; lane++)
        largest = x[lane] > largest ? x[lane] : largest;
    return largest;
#endif
}

/* The 64-bit products of the even lanes of a and b (lane 0, 2, ...). */
static inline vu64 vu_mul_even(vu a, vu b)
{
#if defined(__AVX512F__)
    return (vu64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vu64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vu64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return ((vu64)a & UINT32_MAX) *
           ((vu64)b & UINT32_MAX); /* lane 0 is the low half on little-endian machines */
#endif
}

/* Both halves of the 64-bit products of all lanes. */
static inline void vu_mul_wide(vu a, vu b, vu *high, vu *low)
{
    const vu64 even = vu_mul_even(a, b);
    const vu64 odd = vu_mul_even((vu)((vu64)a >> 32), (vu)((vu64)b >> 32));
    const vu64 upper = (vu64){ 0 } + ((uint64_t)UINT32_MAX << 32);

    *high = (vu)((even >> 32) | (odd & upper));
    *low = (vu)((even & ~upper) | (odd << 32));
}

/* a0 b0 a1 b1 ... of the lower and of the upper halves of a and b. */
static inline void vu_zip(vu a, vu b, vu *lower, vu *upper)
{
#if defined(__AVX512F__)
    *lower = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *upper = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif defined(__AVX2__)
    *lower = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    *upper = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    *lower = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    *upper = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

#endif
