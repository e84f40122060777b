#include "shard_runtime/device/cpu_cast.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"

/* Elements that are converted at a time: both float32 copies stay in the first-level cache. */
enum { BLOCK = 1024 };

static void load(float *restrict out, const void *from, enum fsdp_dtype dtype, size_t first, size_t n)
{
    if (dtype == FSDP_F32) {
        memcpy(out, (const float *)from + first, n * sizeof *out);
    } else {
        const uint16_t *bits = (const uint16_t *)from + first;

        for (size_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(bits[i]);
    }
}

static void store(void *to, enum fsdp_dtype dtype, size_t first, const float *restrict in, size_t n)
{
    if (dtype == FSDP_F32) {
        memcpy((float *)to + first, in, n * sizeof *in);
    } else {
        uint16_t *bits = (uint16_t *)to + first;

        for (size_t i = 0; i < n; i++)
            bits[i] = bf16_of_f32(in[i]);
    }
}

void cpu_cast_elems(void *to, enum fsdp_dtype to_dtype, const void *from, enum fsdp_dtype from_dtype,
                    size_t n_elems, float scale, bool accumulate)
{
    float x[BLOCK], sum[BLOCK];

    assert((to_dtype == FSDP_F32 || to_dtype == FSDP_BF16) &&
           (from_dtype == FSDP_F32 || from_dtype == FSDP_BF16));
    if (to_dtype == from_dtype && scale == 1.0f && !accumulate) {
        if (n_elems > 0 && to != from)
            memcpy(to, from, n_elems * fsdp_dtype_size(to_dtype));
        return;
    }
    for (size_t first = 0; first < n_elems; first += BLOCK) {
        const size_t n = n_elems - first < BLOCK ? n_elems - first : BLOCK;

        load(x, from, from_dtype, first, n);
        if (scale != 1.0f)
            for (size_t i = 0; i < n; i++)
                x[i] *= scale;
        if (accumulate) {
            load(sum, to, to_dtype, first, n);
            for (size_t i = 0; i < n; i++)
                x[i] = sum[i] + x[i];
        }
        store(to, to_dtype, first, x, n);
    }
}

void cpu_round_elems(uint16_t *to, const float *from, size_t n_elems, uint64_t key, uint64_t step,
                     uint64_t first)
{
    for (size_t done = 0; done < n_elems;) {
        const uint64_t at = first + done;
        uint32_t words[4];

        rng_philox(key, step, at / 8, words);
        for (uint64_t half = at % 8; half < 8 && done < n_elems; half++, done++)
            to[done] = bf16_of_f32_drawn(from[done], words[half / 2] >> 16 * (half % 2) & 0xffffu);
    }
}
