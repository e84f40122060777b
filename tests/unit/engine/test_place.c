/* engine/place.h: memory of the places. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "shard_runtime/engine/place.h"
#include "tests/unit/engine/rig.h"

static _Thread_local const struct device_ops *sound_device;
static _Thread_local size_t n_filled;

static void fill_counted(struct device_stream *stream, void *to, size_t size_bytes)
{
    n_filled += size_bytes;
    sound_device->fill_zero(stream, to, size_bytes);
}

/* Returns how many bytes the engine fills while it makes a model and its optimizer. */
static size_t bytes_filled(struct fsdp_context *context, bool allocs_zeroed)
{
    struct device_ops ops = *context->device.ops;
    struct rig rig;

    sound_device = context->device.ops;
    ops.fill_zero = fill_counted;
    ops.allocs_zeroed = allocs_zeroed;
    context->device.ops = &ops;
    n_filled = 0;
    rig_start(&rig, context);
    context->device.ops = sound_device;
    rig_close(&rig);
    return n_filled;
}

static void fill_what_is_new(struct fsdp_context *context, void *user)
{
    (void)user;
    cr_expect(eq(sz, bytes_filled(context, true), 0));
    cr_expect(gt(sz, bytes_filled(context, false), 4 * 1000));
}

WorldTest(place, new_memory_that_is_zero_is_not_filled_again, fill_what_is_new, 1, 2)
