/*
 * Tensors in float8 on the cpu device: the same as number by number, whatever their length and dtype.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/e4m3.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/device.h"

enum { MOST = 3000, GUARD = 0x5a };

static struct device device;
static struct device_stream *stream;

static void open_device(void)
{
    cr_assert(device_open(&device, &(struct device_config){ .name = "cpu" }, NULL) == FSDP_OK);
    cr_assert(device.ops->stream_create(&device, &stream, false, NULL) == FSDP_OK);
}

static void close_device(void)
{
    device.ops->stream_destroy(stream);
    device_close(&device);
}

TestSuite(float8, .init = open_device, .fini = close_device);

Test(float8, a_tensor_goes_number_by_number)
{
    static const size_t lengths[] = { 0, 1, 7, 64, 1023, 1024, 1025, MOST };
    static float wide[MOST], back[MOST + 1];
    static uint16_t half[MOST], back_half[MOST + 1];
    static uint8_t codes[MOST + 1], codes_of_half[MOST + 1];

    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const size_t n = lengths[l];
        float amax = 0, largest = 0;

        rng_fill_normal(rng_key(1, "float8"), 0, wide, n, 0.02f + (float)l);
        for (size_t i = 0; i < n; i++) {
            half[i] = bf16_of_f32(wide[i]);
            largest = fmaxf(largest, fabsf(wide[i]));
        }
        memset(codes, GUARD, sizeof codes);
        memset(codes_of_half, GUARD, sizeof codes_of_half);
        back[n] = 7;
        back_half[n] = 7;

        device.ops->amax(stream, &amax, wide, n);
        device.ops->encode(stream, codes, wide, FSDP_F32, n, &amax);
        device.ops->encode(stream, codes_of_half, half, FSDP_BF16, n, &amax);
        device.ops->decode(stream, back, FSDP_F32, codes, n, &amax);
        device.ops->decode(stream, back_half, FSDP_BF16, codes, n, &amax);

        cr_assert(amax == largest, "%zu: %g, not %g", n, (double)amax, (double)largest);
        for (size_t i = 0; i < n; i++) {
            const float value = e4m3_value(codes[i], amax);

            cr_assert_eq(codes[i], e4m3_of_f32(wide[i] / e4m3_scale(amax)));
            cr_assert_eq(codes_of_half[i], e4m3_of_f32(bf16_to_f32(half[i]) / e4m3_scale(amax)));
            cr_assert(back[i] == value && back_half[i] == bf16_of_f32(value), "%zu of %zu", i, n);
            /* 3 bits of mantissa: half a unit is a sixteenth of the number, below 2^-6 2^-10 of the scale. */
            cr_assert(fabsf(back[i] - wide[i]) <= fabsf(wide[i]) * 0.0626f + e4m3_scale(amax) * 0x1p-10f);
        }
        cr_assert(codes[n] == GUARD && codes_of_half[n] == GUARD && back[n] == 7 && back_half[n] == 7);
    }
}

/* The largest is the largest of what was there before, too: of a tensor in parts. */
Test(float8, the_largest_size_adds_up_over_parts)
{
    const float parts[3] = { -3, 1, 2 };
    float amax = 0;

    for (int i = 0; i < 3; i++) {
        device.ops->amax(stream, &amax, &parts[i], 1);
        cr_assert(amax == 3);
    }
}

Test(float8, one_number_that_is_not_finite_makes_all_of_a_tensor_nan)
{
    const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };

    for (int b = 0; b < 4; b++) {
        const float tensor[5] = { 1, bad[b], 0, -2, 3e38f };
        uint16_t half[5];
        uint8_t codes[5];
        float amax = 0, back[5];

        device.ops->amax(stream, &amax, tensor, 5);
        cr_assert(isinf(amax), "and a maximum over ranks, which may pass over a NaN, keeps it");
        device.ops->encode(stream, codes, tensor, FSDP_F32, 5, &amax);
        device.ops->decode(stream, back, FSDP_F32, codes, 5, &amax);
        device.ops->decode(stream, half, FSDP_BF16, codes, 5, &amax);
        for (int i = 0; i < 5; i++)
            cr_assert(e4m3_bits(back[i]) == 0x7fc00000u && half[i] == 0x7fc0, "%d of %d", i, b);
    }
}
