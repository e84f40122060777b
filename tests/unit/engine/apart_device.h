/*
 * A device whose memory is not the host's, as far as one process can tell: the cpu's, with a list of what is
 * the device's. Copies, conversions and fills are held against it, and copies are counted by their direction
 * and stream.
 */
#ifndef TEST_ENGINE_APART_DEVICE_H
#define TEST_ENGINE_APART_DEVICE_H

#include "shard_runtime/engine/context.h"

enum { APART_MAX_RANGES = 256 };

struct apart_copies {
    size_t n, bytes;
    size_t n_unpinned; /* of these on memory that is not page-locked */
};

struct apart_device {
    struct device_ops ops;
    struct device own; /* of the context, until apart_device_remove() */
    struct apart_range {
        const char *begin;
        size_t size_bytes;
        bool device; /* else page-locked */
    } ranges[APART_MAX_RANGES];
    int n_ranges;
    size_t now_bytes, most_bytes;                  /* of the device */
    struct apart_copies copies[PLAN_N_STREAMS][2]; /* [stream][DEVICE_COPY_TO, DEVICE_COPY_FROM] */
    const struct fsdp_context *context;
};

/** From here on, and before anything is made of it, `context` is on such a device. */
void apart_device_install(struct apart_device *apart, struct fsdp_context *context);
/** Everything made of it is gone: nothing may be left. */
void apart_device_remove(struct apart_device *apart, struct fsdp_context *context);

#endif
