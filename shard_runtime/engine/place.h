/*
 * Where this rank's shards, their gradients and optimizer state are. A unit that offloads has them in host
 * memory, which is page-locked unless the unit says otherwise. All other units have them in device memory. A
 * device whose memory is the host's has only that one place.
 *
 * The host computes on what is in host memory: norms and the optimizer's updates run on host numerics there.
 */
#ifndef ENGINE_PLACE_H
#define ENGINE_PLACE_H

#include "shard_runtime/engine/context.h"

/* Device memory, page-locked host memory, ordinary host memory. */
enum shard_place { PLACE_DEVICE, PLACE_PINNED, PLACE_PAGED, N_PLACES };

/** Open the host's device and numerics, once, before any place but PLACE_DEVICE is used. */
enum fsdp_status place_open_host(struct fsdp_context *context, struct fsdp_err *err);
void place_close_host(struct fsdp_context *context);

/**
 * Allocate `size_bytes` of zeros; 0 bytes give NULL. Device memory is zero once the compute stream has passed
 * this point.
 *   FSDP_ERR_NOMEM  there is not so much memory in this place
 */
enum fsdp_status place_alloc(struct fsdp_context *context, enum shard_place place, size_t size_bytes,
                             float **out, struct fsdp_err *err);
void place_free(struct fsdp_context *context, enum shard_place place, void *memory, size_t size_bytes);
void place_fill_zero(struct fsdp_context *context, enum shard_place place, void *memory, size_t size_bytes);
/** The same for memory that was just allocated and not written yet: does nothing if it is zero already. */
void place_fill_new(struct fsdp_context *context, enum shard_place place, void *memory, size_t size_bytes);

/**
 * Copies from memory of a place to host memory of the caller. The copy is done once the compute stream has
 * passed this point.
 */
void place_read(struct fsdp_context *context, enum shard_place place, void *out, const void *from,
                size_t size_bytes);
/** The same in the other direction. */
void place_write(struct fsdp_context *context, enum shard_place place, void *to, const void *bytes,
                 size_t size_bytes);

/** The numerics that compute on memory of the place. */
struct numerics *place_numerics(struct fsdp_context *context, enum shard_place place);
/** The device whose memory is the host's: the context's own, or the one that was opened in addition. */
struct device *place_host_device(struct fsdp_context *context);

#endif
