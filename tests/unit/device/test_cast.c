/*
 * Conversion: every bfloat16, rounding to nearest even against its definition, and the sizes around a block.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/cpu_cast.h"

enum { ALL = 65536 };

static bool is_nan(uint16_t bits)
{
    return (bits & 0x7fffu) > 0x7f80u;
}

Test(device_cast, every_bfloat16_survives_the_way_through_float32)
{
    static uint16_t all[ALL], back[ALL];
    static float wide[ALL];

    for (int i = 0; i < ALL; i++)
        all[i] = (uint16_t)i;
    cpu_cast_elems(wide, FSDP_F32, all, FSDP_BF16, ALL, 1.0f, false);
    cpu_cast_elems(back, FSDP_BF16, wide, FSDP_F32, ALL, 1.0f, false);

    for (int i = 0; i < ALL; i++)
        cr_assert(is_nan(all[i]) ? is_nan(back[i]) : back[i] == all[i], "%04x became %04x", all[i], back[i]);
}

/* Of the two neighbours of a float32 the nearer one, of two equally near ones the even one. */
Test(device_cast, rounds_to_the_nearest_neighbour_and_ties_to_even)
{
    for (uint32_t upper = 0; upper < 0x7f7fu; upper += 7)
        for (int place = -1; place <= 1; place++) {
            const uint32_t bits = (upper << 16) + 0x8000u + (uint32_t)place;
            const uint16_t want = (uint16_t)(place < 0   ? upper
                                             : place > 0 ? upper + 1
                                                         : upper + (upper & 1u));
            uint16_t got;
            float value;

            memcpy(&value, &bits, sizeof value);
            cpu_cast_elems(&got, FSDP_BF16, &value, FSDP_F32, 1, 1.0f, false);

            cr_assert(got == want, "%08x became %04x, not %04x", bits, got, want);
        }
}

static float as_float(const void *array, enum fsdp_dtype dtype, size_t i)
{
    float value;

    if (dtype == FSDP_F32)
        return ((const float *)array)[i];
    cpu_cast_elems(&value, FSDP_F32, (const uint16_t *)array + i, FSDP_BF16, 1, 1.0f, false);
    return value;
}

Test(device_cast, scales_and_adds_in_float32_at_every_size_and_pair_of_dtypes)
{
    static const size_t sizes[] = { 0, 1, 2, 1023, 1024, 1025, 3000 };
    static const enum fsdp_dtype dtypes[] = { FSDP_F32, FSDP_BF16 };
    static float source[3001], start[3001], from[3001], to[3001], before[3001];

    rng_fill_normal(1, 0, source, 3001, 1.0f);
    rng_fill_normal(2, 0, start, 3001, 1.0f);
    for (int pair = 0; pair < 4; pair++)
        for (int flavour = 0; flavour < 4; flavour++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                const enum fsdp_dtype f = dtypes[pair & 1], t = dtypes[pair >> 1];
                const float scale = (flavour & 1) != 0 ? 0.375f : 1.0f;
                const bool accumulate = (flavour & 2) != 0;
                const size_t n = sizes[s];

                cpu_cast_elems(from, f, source, FSDP_F32, 3001, 1.0f, false);
                cpu_cast_elems(to, t, start, FSDP_F32, 3001, 1.0f, false);
                memcpy(before, to, sizeof to);
                cpu_cast_elems(to, t, from, f, n, scale, accumulate);

                for (size_t i = 0; i < 3001; i++) {
                    float want = as_float(before, t, i), rounded;

                    if (i < n)
                        want = (accumulate ? want : 0.0f) + scale * as_float(from, f, i);
                    rounded = want;
                    if (t == FSDP_BF16) {
                        uint16_t bits;

                        cpu_cast_elems(&bits, FSDP_BF16, &want, FSDP_F32, 1, 1.0f, false);
                        rounded = as_float(&bits, FSDP_BF16, 0);
                    }
                    cr_assert(as_float(to, t, i) == rounded, "pair %d flavour %d n %zu element %zu", pair,
                              flavour, n, i);
                }
            }
}
