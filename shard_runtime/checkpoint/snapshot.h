/*
 * This rank's snapshots in memory: copies of its shards in the slots of its snapshot segment (<fsdp/link.h>),
 * which its agent holds. shardfile/snapshot.h has the protocol of the slots; here are their bytes.
 *
 * The bytes are copied by write(2) and read(2). So a slot is no part of this process's memory, and a process
 * that is started again need not map pages that are there already. Thread: one at a time.
 */
#ifndef CHECKPOINT_SNAPSHOT_H
#define CHECKPOINT_SNAPSHOT_H

#include "shard_runtime/checkpoint/shards.h"
#include "shard_runtime/shardfile/snapshot.h"

struct snapshot;

/* What a segment must be for the snapshots of a state. */
struct snapshot_need {
    struct snapshot_owner owner;
    uint64_t slot_bytes;
};

/**
 * Computes the need of this rank, if the head of its manifest has `manifest_bytes`. There is room for a
 * longer one, as numbers in it grow.
 */
enum fsdp_status snapshot_measure(struct snapshot_need *need, const struct checkpoint_tensor *tensors,
                                  size_t n_tensors, int W, int rank, uint64_t manifest_bytes,
                                  struct fsdp_err *err);

/**
 * Returns how much more memory the segment `fd` will take once snapshot_open() has run, compared with now.
 */
uint64_t snapshot_missing_bytes(int fd, const struct snapshot_need *need);

/**
 * Opens the segment `fd`, which the snapshot owns from now on, also after an error. Snapshots in it are kept
 * if they are of the same state, and are lost otherwise.
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM  *out is NULL
 */
enum fsdp_status snapshot_open(struct snapshot **out, int fd, const struct snapshot_need *need,
                               struct fsdp_err *err);
void snapshot_close(struct snapshot *snapshot); /* NULL is a no-op. The segment keeps its snapshots */

/**
 * Drop other snapshots, and look for one, as snapshot_keep_only() and snapshot_find() of shardfile/snapshot.h
 * do.
 */
void snapshot_go_back(struct snapshot *snapshot, int64_t step);
bool snapshot_has(const struct snapshot *snapshot, int64_t step);

/**
 * Is no snapshot of the segment still being copied to another node? The first returns at once; the second
 * waits first, for a tenth of a second at most. See snapshot_is_copied() of shardfile/snapshot.h.
 */
bool snapshot_copied(const struct snapshot *snapshot);
bool snapshot_wait_copied(struct snapshot *snapshot);

/* A filled slot. */
struct snapshot_filled {
    int slot;
    uint64_t number;
};

/**
 * Copies this rank's shards, and the head of its manifest, into a slot other than `busy` (-1: none).
 *   FSDP_ERR_IO  there was no room, or a shard could not be read. The slot does not count
 */
enum fsdp_status snapshot_fill(struct snapshot *snapshot, const struct shards_save *save,
                               const struct checkpoint_tensor *tensors, size_t n_tensors,
                               const char *manifest, size_t manifest_bytes, int busy,
                               struct snapshot_filled *filled, struct fsdp_err *err);

/**
 * Fills the rows of the tensors from the snapshot of save->step, and *manifest from its head, which the
 * caller releases with manifest_free(). After an error, the rows are undefined.
 *   FSDP_ERR_NOT_FOUND  there is no such snapshot
 *   FSDP_ERR_FORMAT     it is not of these tensors
 */
enum fsdp_status snapshot_load(struct snapshot *snapshot, const struct shards_save *save,
                               const struct checkpoint_tensor *tensors, size_t n_tensors,
                               struct manifest *manifest, struct fsdp_err *err);

#endif
