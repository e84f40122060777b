/*
 * The snapshot segments (<fsdp/link.h>) of the workers of this node, one for each local rank. They stay from
 * one generation to the next. Each is a memfd that is never mapped here: its pages are charged to whoever
 * first writes them, a worker, and cost this process nothing.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_SEGMENTS_H
#define AGENT_SEGMENTS_H

#include <fsdp/status.h>

#include "shard_runtime/shardfile/snapshot.h"

struct segments;

/** Make `n` empty segments. FSDP_ERR_IO, FSDP_ERR_NOMEM: *out is NULL. */
enum fsdp_status segments_create(struct segments **out, int n, struct fsdp_err *err);
void segments_destroy(struct segments *segments); /* NULL is a no-op */

/** The memfd of local rank i, which stays the segments'. */
int segments_fd(const struct segments *segments, int i);

/**
 * Returns the steps that all local ranks hold, if local rank i is rank first_rank + i of a world of
 * world_size ranks. `segments` NULL: none.
 */
struct snapshot_list segments_held(const struct segments *segments, int first_rank, int world_size);
/**
 * Returns the steps of which these segments hold copies for all ranks of another node. That node's first rank
 * is stored in *first_rank. None if `segments` is NULL or has no such copies.
 */
struct snapshot_list segments_copies(const struct segments *segments, int world_size, int *first_rank);
/** Returns the memory that the segments have. */
uint64_t segments_bytes(const struct segments *segments);
/** No worker waits for copies of its snapshots any more. */
void segments_end_copying(const struct segments *segments);
/** Give the memory of the segments back: they are empty afterwards. */
void segments_clear(const struct segments *segments);

#endif
