/*
 * The cpu device. Work runs where it is called, so program order is the only order: recording and waiting
 * have nothing left to do. Streams and events are objects all the same. Code that loses one, or uses it after
 * its end, must fail here too, because every test runs here and the sanitizers watch.
 */
#include "shard_runtime/device/device.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/device/cpu_cast.h"
#include "shard_runtime/device/cpu_float8.h"
#include "shard_runtime/device/cpu_name.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

struct device_stream {
    struct device *device;
    uint64_t n_done; /* operations that this stream has passed */
};

struct device_event {
    struct device *device;
    bool recorded;
    uint64_t mark; /* the value of n_done on the stream that recorded the event last, at that moment */
};

static enum fsdp_status cpu_open(struct device *device, int local_rank, struct fsdp_err *err)
{
    (void)err;
    device->local_rank = local_rank;
    return FSDP_OK;
}

static void cpu_close(struct device *device)
{
    (void)device;
}

static void *map(size_t size_bytes)
{
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* Maps memory that starts on a huge page: maps more than that, and gives back what is before and after it. */
static void *map_on_huge_page(size_t size_bytes)
{
    size_t padded, head;
    char *memory;

    if (size_bytes < HUGE_PAGE || !checked_add(size_bytes, HUGE_PAGE, &padded))
        return NULL;
    memory = map(padded);
    if (memory == NULL)
        return NULL;
    head = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (head > 0)
        (void)munmap(memory, head);
    if (padded - head > size_bytes)
        (void)munmap(memory + head + size_bytes, padded - head - size_bytes);
    return memory + head;
}

static bool round_to_pages(size_t size_bytes, size_t *out)
{
    size_t sum;

    if (!checked_add(size_bytes, PAGE - 1, &sum))
        return false;
    *out = sum / PAGE * PAGE;
    return true;
}

static enum fsdp_status cpu_alloc(struct device *device, size_t size_bytes, void **out, struct fsdp_err *err)
{
    size_t rounded;
    volatile char *page;

    (void)device;
    *out = NULL;
    if (size_bytes == 0)
        return FSDP_OK;
    if (!round_to_pages(size_bytes, &rounded))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "device cpu: %zu bytes are more than can be addressed",
                         size_bytes);
    page = map_on_huge_page(rounded);
    if (page == NULL)
        page = map(rounded); /* the memory is smaller than a huge page, or there is no room for the padding */
    if (page == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "device cpu: mapping %zu bytes: %s", size_bytes,
                         strerror(errno));
    /* Only advice: a kernel without huge pages refuses it, and the memory works as well. */
    (void)madvise((void *)(uintptr_t)page, rounded, MADV_HUGEPAGE);
    *out = (void *)(uintptr_t)page;
    /*
     * The first touch of a page costs ten times as much as later ones. So it is done here, not in the first
     * step.
     */
    for (size_t i = 0; i < rounded; i += PAGE)
        page[i] = 0;
    return FSDP_OK;
}

static void cpu_free(struct device *device, void *memory, size_t size_bytes)
{
    size_t rounded;

    (void)device;
    if (memory == NULL || !round_to_pages(size_bytes, &rounded))
        return;
    (void)munmap(memory, rounded);
}

static enum fsdp_status cpu_stream_create(struct device *device, struct device_stream **out, bool urgent,
                                          struct fsdp_err *err)
{
    (void)urgent;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "device cpu: no memory for a stream");
    (*out)->device = device;
    return FSDP_OK;
}

static void cpu_stream_destroy(struct device_stream *stream)
{
    free(stream);
}

static enum fsdp_status cpu_event_create(struct device *device, struct device_event **out,
                                         struct fsdp_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "device cpu: no memory for an event");
    (*out)->device = device;
    return FSDP_OK;
}

static void cpu_event_destroy(struct device_event *event)
{
    free(event);
}

static void cpu_record(struct device_event *event, struct device_stream *stream)
{
    assert(event->device == stream->device);
    event->mark = stream->n_done;
    event->recorded = true;
}

static void cpu_wait(struct device_stream *stream, struct device_event *event)
{
    /*
     * Nothing to wait for: work runs at once, so all that the event marks was done before record() returned.
     */
    assert(event->device == stream->device);
    if (event->recorded)
        stream->n_done++;
}

static enum fsdp_status cpu_synchronize(struct device_stream *stream, struct fsdp_err *err)
{
    (void)err;
    assert(stream->device != NULL);
    return FSDP_OK;
}

static void cpu_copy(struct device_stream *stream, void *to, const void *from, size_t size_bytes,
                     enum device_copy kind)
{
    (void)kind; /* host and device memory are one */
    if (size_bytes > 0 && to != from)
        memcpy(to, from, size_bytes);
    stream->n_done++;
}

static void cpu_fill_zero(struct device_stream *stream, void *to, size_t size_bytes)
{
    if (size_bytes > 0)
        memset(to, 0, size_bytes);
    stream->n_done++;
}

static void cpu_cast(struct device_stream *stream, void *to, enum fsdp_dtype to_dtype, const void *from,
                     enum fsdp_dtype from_dtype, size_t n_elems, float scale, bool accumulate)
{
    cpu_cast_elems(to, to_dtype, from, from_dtype, n_elems, scale, accumulate);
    stream->n_done++;
}

static void cpu_round_list(struct device_stream *stream, const struct device_rounding *roundings,
                           size_t n_roundings, uint64_t step)
{
    for (size_t i = 0; i < n_roundings; i++) {
        const struct device_rounding *r = &roundings[i];

        cpu_round_elems(r->to, r->from, r->n_elems, r->key, step, r->first);
    }
    stream->n_done++;
}

static void cpu_amax(struct device_stream *stream, float *amax, const float *from, size_t n_elems)
{
    cpu_float8_amax(amax, from, n_elems);
    stream->n_done++;
}

static void cpu_encode(struct device_stream *stream, uint8_t *to, const void *from,
                       enum fsdp_dtype from_dtype, size_t n_elems, const float *amax)
{
    cpu_float8_encode(to, from, from_dtype, n_elems, amax);
    stream->n_done++;
}

static void cpu_decode(struct device_stream *stream, void *to, enum fsdp_dtype to_dtype, const uint8_t *from,
                       size_t n_elems, const float *amax)
{
    cpu_float8_decode(to, to_dtype, from, n_elems, amax);
    stream->n_done++;
}

static void cpu_describe(const struct device *device, char *buffer, size_t size)
{
    (void)device;
    cpu_name(buffer, size);
}

const struct device_ops device_cpu_ops = {
    .name = "cpu",
    .allocs_zeroed = true,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .record = cpu_record,
    .wait = cpu_wait,
    .synchronize = cpu_synchronize,
    .copy = cpu_copy,
    .fill_zero = cpu_fill_zero,
    .cast = cpu_cast,
    .round_list = cpu_round_list,
    .amax = cpu_amax,
    .encode = cpu_encode,
    .decode = cpu_decode,
    .describe = cpu_describe,
};
