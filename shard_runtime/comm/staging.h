/*
 * Collectives on device memory by way of the host, for ranks that share one GPU, for tests and small
 * machines:
 *   1. a piece of the buffer is copied down to page-locked host memory;
 *   2. the group over host memory runs its collective on the piece;
 *   3. the result is copied up again; then the next piece follows.
 * A piece takes STAGING_BYTES for all ranks together. Every element is summed as if there were one piece.
 */
#ifndef COMM_STAGING_H
#define COMM_STAGING_H

#include "shard_runtime/comm/call.h"
#include "shard_runtime/device/device.h"

enum { STAGING_BYTES = 16 << 20 };

struct staging {
    struct device *device;  /* borrowed, as `host` */
    struct fsdp_comm *host; /* over host memory */
    char *memory;           /* page-locked, STAGING_BYTES; NULL until it is used */
};

void staging_init(struct staging *staging, struct device *device, struct fsdp_comm *host);
/** Frees the page-locked memory. `device` must still be open. */
void staging_fini(struct staging *staging);

/**
 * Runs a collective whose buffers are in device memory, in order with `stream`. Blocks until it is done.
 * Returns what the host group or the device failed with, or FSDP_ERR_NOMEM where there is no page-locked
 * memory.
 */
enum fsdp_status staging_run(struct staging *staging, struct device_stream *stream,
                             const struct comm_work *work, struct fsdp_err *err);

#endif
