/*
 * One filling of a snapshot's slot on its way from the memory of one node to that of another. The bytes come
 * first, then their checksum. The slot at the receiver counts when both are there and agree.
 *
 * Thread: one at a time for a segment.
 */
#ifndef AGENT_COPY_IMAGE_H
#define AGENT_COPY_IMAGE_H

#include <stdint.h>

#include "agent/snapshot/copy_stream.h"
#include "shard_runtime/shardfile/snapshot.h"

/* A segment with its head mapped. */
struct copy_segment {
    int fd;
    struct fsdp_snapshot_head *head;
};

/** Map the head of the segment `fd`, which stays the caller's. It gets the size of a head if it has less. */
enum fsdp_status copy_segment_map(struct copy_segment *segment, int fd, struct fsdp_err *err);

/* Describes the bytes that follow it. It is in the byte order of the nodes, which run the same build. */
struct copy_offer {
    uint32_t magic, slot;
    struct snapshot_owner owner;
    uint64_t capacity; /* of each slot of the segment */
    struct snapshot_filling filling;
};

/** Describe a complete slot. False: it is not complete. */
bool copy_offer_of(struct copy_offer *offer, const struct copy_segment *segment, int slot);
/** Could a snapshot as described be received? The offer may come from any process. */
bool copy_offer_is_sound(const struct copy_offer *offer);
/** Does the same slot of the segment hold this very snapshot already? */
bool copy_has(const struct copy_segment *segment, const struct copy_offer *offer);
/** Returns how much more memory the segment will take once the offered snapshot is received. */
uint64_t copy_missing_bytes(const struct copy_segment *segment, const struct copy_offer *offer);

/**
 * Send the bytes of an offered slot, and their checksum. If the slot was filled again meanwhile, the receiver
 * is told that the bytes do not count, and *sent is false.
 */
enum fsdp_status copy_image_send(struct copy_stream *stream, const struct copy_segment *segment,
                                 const struct copy_offer *offer, bool *sent, struct fsdp_err *err);

/**
 * Receive the bytes that copy_image_send() sends into the same slot. A segment of another rank, world or
 * layout is laid out for this one first, and loses what it held.
 *   FSDP_ERR_FORMAT    the bytes are not those that were sent
 *   FSDP_ERR_MISMATCH  the slot was filled again, and its bytes do not count
 *   FSDP_ERR_IO        no room for them
 * After an error the slot does not count.
 */
enum fsdp_status copy_image_receive(struct copy_stream *stream, const struct copy_segment *segment,
                                    const struct copy_offer *offer, struct fsdp_err *err);

#endif
