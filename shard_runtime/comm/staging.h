/*
 * Collectives on device memory by way of the host's: pieces of a buffer are copied to page-locked memory, go through
 * the host group's collective, and are copied back. The caller waits: this is for ranks that share one GPU, for tests and small
 * machines. Pieces are of STAGING_BYTES for all ranks together, and every element is summed as in one piece.
 */
#ifndef COMM_STAGING_H
#define COMM_STAGING_H

#include <fsdp/comm.h>

#include "shard_runtime/device/device.h"

enum { STAGING_BYTES = 16 << 20 };

struct staging {
    struct device *device;  /* borrowed, as `host` */
    struct fsdp_comm *host; /* over host memory */
    char *memory;           /* page-locked, STAGING_BYTES; NULL until it is used */
};

void staging_init(struct staging *staging, struct device *device, struct fsdp_comm *host);
void staging_fini(struct staging *staging);

/** As <fsdp/comm.h>; done when they return. */
enum fsdp_status staging_all_gather(struct staging *staging, struct device_stream *stream, const void *send,
                                    void *recv, size_t n_elems, enum fsdp_dtype dtype, struct fsdp_err *err);
enum fsdp_status staging_reduce_scatter(struct staging *staging, struct device_stream *stream,
                                        const void *send, void *recv, size_t n_elems, enum fsdp_dtype dtype,
                                        enum fsdp_reduce_op op, struct fsdp_err *err);
enum fsdp_status staging_all_reduce(struct staging *staging, struct device_stream *stream, void *buffer,
                                    size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                    struct fsdp_err *err);
enum fsdp_status staging_broadcast(struct staging *staging, struct device_stream *stream, void *buffer,
                                   size_t size_bytes, int root, struct fsdp_err *err);

#endif
