/*
 * Collectives that are queued on a device and not known to be done. The flight recorder (<fsdp/link.h>) is to show which
 * ones a rank that hangs is in: a call that has only been queued has not ended, so its entry stays open until its stream has passed an
 * event behind it. That is looked for when the next is queued and while somebody waits for the device; ends are so late by
 * milliseconds at most.
 */
#ifndef COMM_DEVICE_PENDING_H
#define COMM_DEVICE_PENDING_H

#include <fsdp/link.h>

#include "shard_runtime/device/device.h"

struct device_pending;

/** *pending, made when NULL, takes `entry`, of the collective that was just queued on `stream`. Where there is no memory or no
 * event for it the entry ends at once. */
void device_pending_add(struct device_pending **pending, struct device *device, struct device_stream *stream,
                        struct fsdp_flight_entry *entry);
/** End the entries of those that are done. NULL is a no-op. */
void device_pending_look(struct device_pending *pending);
/** NULL is a no-op. */
void device_pending_destroy(struct device_pending *pending);

#endif
