/*
 * Where this rank's shards, their gradients and optimizer state are: in device memory or, of a unit that offloads, in host
 * memory, page-locked unless the unit said otherwise. On a device whose memory is the host's all of it is the first.
 *
 * What is in host memory is the host's to compute on: the optimizer's updates and the norms of it run on host numerics.
 */
#ifndef ENGINE_PLACE_H
#define ENGINE_PLACE_H

#include "shard_runtime/engine/context.h"

enum shard_place { PLACE_DEVICE, PLACE_PINNED, PLACE_PAGED, N_PLACES };

/** Make the host's device and numerics ready, once: before any of the other places is used. */
enum fsdp_status place_open_host(struct fsdp_context *context, struct fsdp_err *err);
void place_close_host(struct fsdp_context *context);

/** `size_bytes` of zeros in *out; 0 gives NULL. On the device they are there when the stream that computes has passed. */
enum fsdp_status place_alloc(struct fsdp_context *context, enum shard_place place, size_t size_bytes,
                             float **out, struct fsdp_err *err);
void place_free(struct fsdp_context *context, enum shard_place place, void *memory, size_t size_bytes);
void place_fill_zero(struct fsdp_context *context, enum shard_place place, void *memory, size_t size_bytes);

/** Copy between a place and memory of the caller's on the host. Done when the stream that computes has passed. */
void place_read(struct fsdp_context *context, enum shard_place place, void *out, const void *from,
                size_t size_bytes);
void place_write(struct fsdp_context *context, enum shard_place place, void *to, const void *bytes,
                 size_t size_bytes);

/** Who computes on what is there. */
struct numerics *place_numerics(struct fsdp_context *context, enum shard_place place);
/** The device whose memory is the host's. */
struct device *place_host_device(struct fsdp_context *context);

#endif
