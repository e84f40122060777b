/*
 * Collectives that are queued on a device and not known to be done. The flight recorder (<fsdp/link.h>) shows
 * which collectives a rank that hangs is in, and a call that is only queued has not ended. So:
 *   1. After a call is queued, an event is recorded on its stream.
 *   2. The call's entry of the recorder stays open until the stream has passed the event.
 *   3. That is checked when the next call is queued, and while a thread waits for the device.
 * So entries end late, by milliseconds at most.
 */
#ifndef COMM_DEVICE_PENDING_H
#define COMM_DEVICE_PENDING_H

#include <fsdp/link.h>

#include "shard_runtime/device/device.h"

struct device_pending;

/**
 * Adds the collective that was just queued on `stream`, with its `entry` of the recorder of `page`. *pending
 * is made if it is NULL. Without memory or an event for it, the entry ends at once.
 */
void device_pending_add(struct device_pending **pending, struct device *device, struct fsdp_progress *page,
                        struct device_stream *stream, struct fsdp_flight_entry *entry);
/** Ends the entries of the collectives that the device has done. Never blocks. NULL is a no-op. */
void device_pending_look(struct device_pending *pending);
/** Destroys the events; entries that are open stay so. NULL is a no-op. */
void device_pending_destroy(struct device_pending *pending);

#endif
