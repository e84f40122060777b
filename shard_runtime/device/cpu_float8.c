#include "shard_runtime/device/cpu_float8.h"

#include <assert.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/e4m3.h"

enum { BLOCK = 1024 };

/*
 * Without the sign, the bits of floats are ordered as the floats are. Infinity and all NaNs count as
 * infinity.
 */
void cpu_float8_amax(float *amax, const float *from, size_t n_elems)
{
    int32_t largest = (int32_t)e4m3_bits(*amax);

    for (size_t i = 0; i < n_elems; i++) {
        const int32_t size = (int32_t)(e4m3_bits(from[i]) & 0x7fffffffu);

        largest = size > largest ? size : largest;
    }
    *amax = e4m3_float(largest > 0x7f800000 ? 0x7f800000u : (uint32_t)largest);
}

static void encode_block(uint8_t *restrict to, const float *restrict from, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        to[i] = e4m3_of_f32(from[i] / scale);
}

void cpu_float8_encode(uint8_t *to, const void *from, enum fsdp_dtype from_dtype, size_t n_elems,
                       const float *amax)
{
    const float scale = e4m3_scale(*amax);
    float wide[BLOCK];

    assert(from_dtype == FSDP_F32 || from_dtype == FSDP_BF16);
    if (from_dtype == FSDP_F32) {
        encode_block(to, from, n_elems, scale);
        return;
    }
    for (size_t first = 0; first < n_elems; first += BLOCK) {
        const uint16_t *bits = (const uint16_t *)from + first;
        const size_t n = n_elems - first < BLOCK ? n_elems - first : BLOCK;

        for (size_t i = 0; i < n; i++)
            wide[i] = bf16_to_f32(bits[i]);
        encode_block(to + first, wide, n, scale);
    }
}

/* A tensor has at most 256 different numbers, so each of them is computed once. */
void cpu_float8_decode(void *to, enum fsdp_dtype to_dtype, const uint8_t *from, size_t n_elems,
                       const float *amax)
{
    float values[256];
    uint16_t halves[256];

    assert(to_dtype == FSDP_F32 || to_dtype == FSDP_BF16);
    for (int code = 0; code < 256; code++) {
        values[code] = e4m3_value((uint8_t)code, *amax);
        halves[code] = bf16_of_f32(values[code]);
    }
    if (to_dtype == FSDP_F32) {
        for (size_t i = 0; i < n_elems; i++)
            ((float *)to)[i] = values[from[i]];
    } else {
        for (size_t i = 0; i < n_elems; i++)
            ((uint16_t *)to)[i] = halves[from[i]];
    }
}
