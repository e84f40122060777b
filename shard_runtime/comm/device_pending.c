#include "shard_runtime/comm/device_pending.h"

#include <stdlib.h>
#include <time.h>

#include "shard_runtime/comm/flight.h"
#include "shard_runtime/core/alloc.h"

struct call {
    struct device_event *event; /* made once for each place */
    struct fsdp_flight_entry *entry;
    uint64_t number; /* of the entry, which another call may have by now */
    bool done;
};

/* As many as the recorder remembers: what is pushed out of here has been forgotten there. */
struct device_pending {
    struct device *device;
    unsigned first, n;
    struct call calls[FSDP_FLIGHT_ENTRIES];
};

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct call *call_at(struct device_pending *pending, unsigned i)
{
    return &pending->calls[(pending->first + i) % FSDP_FLIGHT_ENTRIES];
}

static void end(struct call *call)
{
    if (atomic_load_explicit(&call->entry->number, memory_order_relaxed) == call->number)
        flight_end(call->entry, now_ns());
    call->done = true;
}

/* Those at the front that are done leave; it is as many questions as calls, and one. */
static void drop_done(struct device_pending *pending)
{
    while (pending->n > 0) {
        struct call *call = call_at(pending, 0);

        if (!call->done && !pending->device->ops->passed(call->event))
            return;
        if (!call->done)
            end(call);
        pending->first = (pending->first + 1) % FSDP_FLIGHT_ENTRIES;
        pending->n--;
    }
}

void device_pending_add(struct device_pending **pending, struct device *device, struct device_stream *stream,
                        struct fsdp_flight_entry *entry)
{
    struct call *call;

    if (*pending == NULL) {
        *pending = alloc_array(1, sizeof **pending);
        if (*pending != NULL)
            (*pending)->device = device;
    }
    if (*pending != NULL) {
        drop_done(*pending);
        if ((*pending)->n == FSDP_FLIGHT_ENTRIES) {
            (*pending)->first = ((*pending)->first + 1) % FSDP_FLIGHT_ENTRIES;
            (*pending)->n--;
        }
        call = call_at(*pending, (*pending)->n);
        if (call->event != NULL || device->ops->event_create(device, &call->event, NULL) == FSDP_OK) {
            device->ops->record(call->event, stream);
            call->entry = entry;
            call->number = atomic_load_explicit(&entry->number, memory_order_relaxed);
            call->done = false;
            (*pending)->n++;
            return;
        }
    }
    flight_end(entry, now_ns());
}

void device_pending_look(struct device_pending *pending)
{
    if (pending == NULL)
        return;
    drop_done(pending);
    for (unsigned i = 1; i < pending->n; i++) {
        struct call *call = call_at(pending, i);

        if (!call->done && pending->device->ops->passed(call->event))
            end(call);
    }
}

void device_pending_destroy(struct device_pending *pending)
{
    if (pending == NULL)
        return;
    for (int i = 0; i < FSDP_FLIGHT_ENTRIES; i++)
        if (pending->calls[i].event != NULL)
            pending->device->ops->event_destroy(pending->calls[i].event);
    free(pending);
}
