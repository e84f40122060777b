#include "tests/unit/engine/apart_device.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/place.h"

/*
 * A stream knows its device, whose storage is the context's; operations on streams have nothing else
 * to go by.
 */
static _Thread_local struct apart_device *current;

static const struct apart_range *find(const void *memory)
{
    for (int i = 0; i < current->n_ranges; i++)
        if ((const char *)memory >= current->ranges[i].begin &&
            (const char *)memory < current->ranges[i].begin + current->ranges[i].size_bytes)
            return &current->ranges[i];
    return NULL;
}

static bool owns(const struct device *device, const void *memory)
{
    const struct apart_range *range = find(memory);

    (void)device;
    return range != NULL && range->device;
}

static void add_range(void *memory, size_t size_bytes, bool device)
{
    cr_assert(current->n_ranges < APART_MAX_RANGES);
    current->ranges[current->n_ranges++] = (struct apart_range){ memory, size_bytes, device };
    current->now_bytes += device ? size_bytes : 0;
    if (current->now_bytes > current->most_bytes)
        current->most_bytes = current->now_bytes;
}

static void drop_range(const void *memory, size_t size_bytes, bool device)
{
    for (int i = 0; i < current->n_ranges; i++)
        if (current->ranges[i].begin == memory) {
            cr_assert(current->ranges[i].size_bytes == size_bytes && current->ranges[i].device == device);
            current->ranges[i] = current->ranges[--current->n_ranges];
            current->now_bytes -= device ? size_bytes : 0;
            return;
        }
    cr_assert(false, "freed what is not there");
}

static enum fsdp_status alloc_any(struct device *device, size_t size_bytes, void **out, bool of_device,
                                  struct fsdp_err *err)
{
    const enum fsdp_status status = device_cpu_ops.alloc(device, size_bytes, out, err);

    if (*out != NULL)
        add_range(*out, size_bytes, of_device);
    return status;
}

static enum fsdp_status alloc(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err)
{
    const enum fsdp_status status = alloc_any(device, size_bytes, out, true, err);

    if (*out != NULL)
        memset(*out, 0x7f, size_bytes); /* what nobody wrote is 3.4e38 */
    return status;
}

static void free_device(struct device *device, void *memory, size_t size_bytes)
{
    if (memory == NULL)
        return;
    drop_range(memory, size_bytes, true);
    device_cpu_ops.free(device, memory, size_bytes);
}

static enum fsdp_status alloc_host(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err)
{
    return alloc_any(device, size_bytes, out, false, err);
}

static void free_host(struct device *device, void *memory, size_t size_bytes)
{
    if (memory == NULL)
        return;
    drop_range(memory, size_bytes, false);
    device_cpu_ops.free(device, memory, size_bytes);
}

static void copy(struct device_stream *stream, void *to, const void *from, size_t size_bytes,
                 enum device_copy kind)
{
    const void *host = kind == DEVICE_COPY_TO ? from : to;

    cr_assert(size_bytes == 0 || (owns(NULL, to) == (kind != DEVICE_COPY_FROM) &&
                                  owns(NULL, from) == (kind != DEVICE_COPY_TO)),
              "a copy of kind %d between the wrong places", (int)kind);
    for (int s = 0; s < PLAN_N_STREAMS && kind != DEVICE_COPY_WITHIN; s++)
        if (current->context->streams[s] == stream) {
            struct apart_copies *copies = &current->copies[s][kind];

            copies->n++;
            copies->bytes += size_bytes;
            copies->n_unpinned += find(host) == NULL;
        }
    device_cpu_ops.copy(stream, to, from, size_bytes, kind);
}

static void fill_zero(struct device_stream *stream, void *to, size_t size_bytes)
{
    cr_assert(size_bytes == 0 || owns(NULL, to), "the device fills the host's memory");
    device_cpu_ops.fill_zero(stream, to, size_bytes);
}

static void cast(struct device_stream *stream, void *to, enum fsdp_dtype to_dtype, const void *from,
                 enum fsdp_dtype from_dtype, size_t n_elems, float scale, bool accumulate)
{
    cr_assert(n_elems == 0 || (owns(NULL, to) && owns(NULL, from)), "the device converts the host's memory");
    device_cpu_ops.cast(stream, to, to_dtype, from, from_dtype, n_elems, scale, accumulate);
}

static void round_list(struct device_stream *stream, const struct device_rounding *roundings,
                       size_t n_roundings, uint64_t step)
{
    for (size_t i = 0; i < n_roundings; i++)
        cr_assert(owns(NULL, roundings[i].to) && owns(NULL, roundings[i].from),
                  "the device rounds the host's memory");
    device_cpu_ops.round_list(stream, roundings, n_roundings, step);
}

static void amax(struct device_stream *stream, float *to, const float *from, size_t n_elems)
{
    cr_assert(owns(NULL, to) && (n_elems == 0 || owns(NULL, from)), "the device reads the host's memory");
    device_cpu_ops.amax(stream, to, from, n_elems);
}

static void encode(struct device_stream *stream, uint8_t *to, const void *from, enum fsdp_dtype from_dtype,
                   size_t n_elems, const float *largest)
{
    cr_assert(owns(NULL, largest) && (n_elems == 0 || (owns(NULL, to) && owns(NULL, from))),
              "the device encodes the host's memory");
    device_cpu_ops.encode(stream, to, from, from_dtype, n_elems, largest);
}

static void decode(struct device_stream *stream, void *to, enum fsdp_dtype to_dtype, const uint8_t *from,
                   size_t n_elems, const float *largest)
{
    cr_assert(owns(NULL, largest) && (n_elems == 0 || (owns(NULL, to) && owns(NULL, from))),
              "the device decodes the host's memory");
    device_cpu_ops.decode(stream, to, to_dtype, from, n_elems, largest);
}

void apart_device_install(struct apart_device *apart, struct fsdp_context *context)
{
    *apart = (struct apart_device){ .ops = *context->device.ops, .own = context->device, .context = context };
    apart->ops.name = "cuda";
    apart->ops.allocs_zeroed = false;
    apart->ops.alloc = alloc;
    apart->ops.free = free_device;
    apart->ops.alloc_host = alloc_host;
    apart->ops.free_host = free_host;
    apart->ops.owns = owns;
    apart->ops.copy = copy;
    apart->ops.fill_zero = fill_zero;
    apart->ops.cast = cast;
    apart->ops.round_list = round_list;
    apart->ops.amax = amax;
    apart->ops.encode = encode;
    apart->ops.decode = decode;
    context->device.ops = &apart->ops;
    current = apart;
}

void apart_device_remove(struct apart_device *apart, struct fsdp_context *context)
{
    cr_assert(apart->n_ranges == 0, "%d pieces of memory are left", apart->n_ranges);
    place_close_host(context);
    context->device = apart->own;
    current = NULL;
}
