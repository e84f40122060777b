/*
 * bfloat16 to float32 and back, as core/bf16.h rounds: to nearest, ties to even, a NaN stays one. Loops that
 * the compiler turns into vectors in every set.
 */
#include <string.h>

#include "shard_runtime/numerics/isa/kernels.h"

void ROW(from_bf16)(const uint16_t *restrict x, float *restrict out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t wide = (uint32_t)x[i] << 16;

        memcpy(out + i, &wide, sizeof wide);
    }
}

void ROW(to_bf16)(const float *restrict x, uint16_t *restrict out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits, rounded;

        memcpy(&bits, x + i, sizeof bits);
        rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        out[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
    }
}

void ROW(split_bf16)(const float *restrict x, uint16_t *restrict high, uint16_t *restrict low, size_t n)
{
    ROW(to_bf16)(x, high, n);
    for (size_t i = 0; i < n; i++) {
        const uint32_t wide = (uint32_t)high[i] << 16;
        uint32_t bits;
        float rounded, rest;

        memcpy(&rounded, &wide, sizeof rounded);
        rest = x[i] - rounded;
        memcpy(&bits, &rest, sizeof bits);
        bits = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        low[i] = (uint16_t)((high[i] & 0x7f80u) == 0x7f80u ? 0 : bits);
    }
}
