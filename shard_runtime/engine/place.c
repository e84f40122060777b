#include "shard_runtime/engine/place.h"

#include <string.h>

#include "shard_runtime/comm/device_memory.h"
#include "shard_runtime/core/require.h"

struct device *place_host_device(struct fsdp_context *context)
{
    return device_is_separate(&context->device) ? &context->host : &context->device;
}

enum fsdp_status place_open_host(struct fsdp_context *context, struct fsdp_err *err)
{
    const struct device_config device = { .name = "cpu", .local_rank = context->device.local_rank };
    const struct numerics_config numerics = { .threads = context->threads, .name = "plain" };

    if (!device_is_separate(&context->device) || context->host_numerics.ops != NULL)
        return FSDP_OK;
    if (context->host.ops == NULL)
        OK_OR_RETURN(device_open(&context->host, &device, err));
    return numerics_open(&context->host_numerics, &numerics, err);
}

void place_close_host(struct fsdp_context *context)
{
    numerics_close(&context->host_numerics);
    device_close(&context->host);
}

struct numerics *place_numerics(struct fsdp_context *context, enum shard_place place)
{
    return place == PLACE_DEVICE ? &context->numerics : &context->host_numerics;
}

enum fsdp_status place_alloc(struct fsdp_context *context, enum shard_place place, size_t size_bytes,
                             float **out, struct fsdp_err *err)
{
    struct device *device = &context->device, *host = place_host_device(context);
    void *memory = NULL;

    *out = NULL;
    if (size_bytes == 0)
        return FSDP_OK;
    OK_OR_RETURN(place == PLACE_DEVICE   ? device->ops->alloc(device, size_bytes, &memory, err)
                 : place == PLACE_PINNED ? device->ops->alloc_host(device, size_bytes, &memory, err)
                                         : host->ops->alloc(host, size_bytes, &memory, err));
    *out = memory;
    place_fill_new(context, place, memory, size_bytes);
    return FSDP_OK;
}

void place_free(struct fsdp_context *context, enum shard_place place, void *memory, size_t size_bytes)
{
    struct device *device = &context->device, *host = place_host_device(context);

    if (memory == NULL)
        return;
    if (place == PLACE_DEVICE)
        /* frees the memory whether or not its pages were registered with the collectives */
        device_memory_free(&context->comms, memory, size_bytes);
    else if (place == PLACE_PINNED)
        device->ops->free_host(device, memory, size_bytes);
    else
        host->ops->free(host, memory, size_bytes);
}

void place_fill_zero(struct fsdp_context *context, enum shard_place place, void *memory, size_t size_bytes)
{
    if (place == PLACE_DEVICE)
        context->device.ops->fill_zero(context->streams[PLAN_COMPUTE], memory, size_bytes);
    else
        memset(memory, 0, size_bytes);
}

void place_fill_new(struct fsdp_context *context, enum shard_place place, void *memory, size_t size_bytes)
{
    const struct device *device = place == PLACE_PAGED ? place_host_device(context) : &context->device;

    if (!device->ops->allocs_zeroed)
        place_fill_zero(context, place, memory, size_bytes);
}

void place_read(struct fsdp_context *context, enum shard_place place, void *out, const void *from,
                size_t size_bytes)
{
    if (place == PLACE_DEVICE)
        context->device.ops->copy(context->streams[PLAN_COMPUTE], out, from, size_bytes, DEVICE_COPY_FROM);
    else if (size_bytes > 0)
        memcpy(out, from, size_bytes);
}

void place_write(struct fsdp_context *context, enum shard_place place, void *to, const void *bytes,
                 size_t size_bytes)
{
    if (place == PLACE_DEVICE)
        context->device.ops->copy(context->streams[PLAN_COMPUTE], to, bytes, size_bytes, DEVICE_COPY_TO);
    else if (size_bytes > 0)
        memcpy(to, bytes, size_bytes);
}
