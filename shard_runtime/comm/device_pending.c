#include "shard_runtime/comm/device_pending.h"

#include <stdlib.h>

#include "shard_runtime/comm/flight.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/clock.h"

/* A queued collective. */
struct call {
    struct device_event *event; /* made when the place is first used, then used again */
    struct fsdp_flight_entry *entry;
    /* entry->number when the call was added; a newer collective may have taken the entry since */
    uint64_t number;
    bool done;
};

/*
 * A ring, as long as the recorder's. A call that no longer fits in here has lost its entry in the recorder
 * too.
 */
struct device_pending {
    struct device *device;
    struct fsdp_progress *page;
    unsigned first, n;
    struct call calls[FSDP_FLIGHT_ENTRIES];
};

static struct call *call_at(struct device_pending *pending, unsigned i)
{
    return &pending->calls[(pending->first + i) % FSDP_FLIGHT_ENTRIES];
}

/* Ends the call's entry, unless a newer collective has taken it. */
static void end(const struct device_pending *pending, struct call *call)
{
    if (atomic_load_explicit(&call->entry->number, memory_order_relaxed) == call->number)
        flight_end(pending->page, call->entry, clock_now_ns());
    call->done = true;
}

/*
 * Removes the calls at the front that are done. Asks the device about each of them, and about the first that
 * is not done.
 */
static void drop_done(struct device_pending *pending)
{
    while (pending->n > 0) {
        struct call *call = call_at(pending, 0);

        if (!call->done && !pending->device->ops->passed(call->event))
            return;
        if (!call->done)
            end(pending, call);
        pending->first = (pending->first + 1) % FSDP_FLIGHT_ENTRIES;
        pending->n--;
    }
}

void device_pending_add(struct device_pending **pending, struct device *device, struct fsdp_progress *page,
                        struct device_stream *stream, struct fsdp_flight_entry *entry)
{
    struct call *call;

    if (*pending == NULL) {
        *pending = alloc_array(1, sizeof **pending);
        if (*pending != NULL) {
            (*pending)->device = device;
            (*pending)->page = page;
        }
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
    flight_end(page, entry, clock_now_ns());
}

void device_pending_look(struct device_pending *pending)
{
    if (pending == NULL)
        return;
    drop_done(pending);
    for (unsigned i = 1; i < pending->n; i++) {
        struct call *call = call_at(pending, i);

        if (!call->done && pending->device->ops->passed(call->event))
            end(pending, call);
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
