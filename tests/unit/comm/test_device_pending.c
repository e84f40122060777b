/*
 * Collectives that are queued: their entries of the flight recorder end when the device has passed them, in
 * whatever order. They never end the entry of another call that has the place by then.
 */
#include "shard_runtime/comm/device_pending.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "shard_runtime/comm/flight.h"
#include "shard_runtime/core/alloc.h"

/* A device whose streams pass events when a test says so. */
struct device_event {
    bool recorded, passed;
};

static struct device_event *events[2 * FSDP_FLIGHT_ENTRIES];
static int n_events, n_destroyed, n_recorded;
static bool no_events;

static enum fsdp_status event_create(struct device *device, struct device_event **out, struct fsdp_err *err)
{
    (void)device;
    if (no_events)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no event");
    *out = events[n_events++] = calloc(1, sizeof **out);
    return FSDP_OK;
}

static void event_destroy(struct device_event *event)
{
    n_destroyed++;
    free(event);
}

static void record(struct device_event *event, struct device_stream *stream)
{
    (void)stream;
    n_recorded++;
    *event = (struct device_event){ .recorded = true };
}

static bool passed(struct device_event *event)
{
    return event->passed;
}

static const struct device_ops ops = {
    .event_create = event_create, .event_destroy = event_destroy, .record = record, .passed = passed
};
static struct device device = { .ops = &ops };
static _Alignas(64) char memory[FSDP_PROGRESS_BYTES];
static struct fsdp_progress *const page = (struct fsdp_progress *)memory;

static struct fsdp_flight_entry *begin(void)
{
    return flight_begin(page, &(struct flight_note){ .kind = "all_gather", .root = -1 }, 1);
}

Test(device_pending, ends_what_the_device_has_passed_in_any_order)
{
    struct device_pending *pending = NULL;
    struct fsdp_flight_entry *entries[3];

    for (int i = 0; i < 3; i++) {
        entries[i] = begin();
        device_pending_add(&pending, &device, page, NULL, entries[i]);
    }
    device_pending_look(pending);
    for (int i = 0; i < 3; i++)
        cr_expect(entries[i]->ended_ns == 0, "queued is not done");

    events[1]->passed = true; /* another stream is faster */
    device_pending_look(pending);
    cr_expect(entries[0]->ended_ns == 0 && entries[1]->ended_ns != 0 && entries[2]->ended_ns == 0);
    events[0]->passed = true;
    device_pending_look(pending);
    cr_expect(entries[0]->ended_ns != 0 && entries[2]->ended_ns == 0);
    events[2]->passed = true;
    device_pending_add(&pending, &device, page, NULL, begin());
    cr_expect(entries[2]->ended_ns != 0, "the next call looks too");

    device_pending_destroy(pending);
    cr_expect(n_events == n_destroyed);
}

Test(device_pending, remembers_as_many_as_the_recorder)
{
    struct device_pending *pending = NULL;
    struct fsdp_flight_entry *entry = NULL;

    for (int i = 0; i < 3 * FSDP_FLIGHT_ENTRIES; i++)
        device_pending_add(&pending, &device, page, NULL, entry = begin());
    cr_expect(n_events == FSDP_FLIGHT_ENTRIES && n_recorded == 3 * FSDP_FLIGHT_ENTRIES);
    for (int i = 0; i < n_events; i++)
        events[i]->passed = true;
    device_pending_look(pending);
    cr_expect(entry->ended_ns != 0);
    for (int i = 0; i < FSDP_FLIGHT_ENTRIES; i++)
        cr_expect(fsdp_flight(page)[i].ended_ns != 0);
    device_pending_destroy(pending);
}

Test(device_pending, a_place_that_has_another_call_is_left_alone)
{
    struct device_pending *pending = NULL;
    struct fsdp_flight_entry *old = begin(), *new;

    device_pending_add(&pending, &device, page, NULL, old);
    do /* calls of host memory, which are not queued */
        new = begin();
    while (new != old);
    events[0]->passed = true;
    device_pending_look(pending);

    cr_expect(new->ended_ns == 0);
    device_pending_destroy(pending);
}

Test(device_pending, without_memory_or_event_a_call_ends_as_it_is_queued)
{
    struct device_pending *pending = NULL;
    struct fsdp_flight_entry *entry = begin();

    alloc_fail_nth(1);
    device_pending_add(&pending, &device, page, NULL, entry);
    cr_expect(pending == NULL && entry->ended_ns != 0);
    no_events = true;
    entry = begin();
    device_pending_add(&pending, &device, page, NULL, entry);
    cr_expect(entry->ended_ns != 0);
    device_pending_look(NULL);
    device_pending_look(pending);
    device_pending_destroy(pending);
    device_pending_destroy(NULL);
}
