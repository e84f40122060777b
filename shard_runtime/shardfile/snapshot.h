/*
 * The protocol for the slots of a snapshot segment (<fsdp/link.h>): which slot is filled next, which fillings
 * are valid, and for which rank. The bytes in the slots are not handled here: checkpoint/snapshot.h fills and
 * loads them, and the agent writes them to the disk.
 *
 * Pure. Only one process fills a segment. Others may read its head at any time. An agent, which does not map
 * the segment, reads a copy of the head.
 */
#ifndef SHARDFILE_SNAPSHOT_H
#define SHARDFILE_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/link.h>

/*
 * What a segment was made for: a rank, a world size and a layout. Other ranks, worlds or models must not use
 * it.
 */
struct snapshot_owner {
    uint32_t rank, world_size;
    uint64_t layout_hash;
};

/* A step that is in memory, of a rank or of all ranks of a node or world. step -1: none. */
struct snapshot_held {
    int64_t step;
    uint32_t generation; /* the generation in which the snapshot was taken */
};

/* All steps that are in memory, the newest first. Unused entries have step -1. */
struct snapshot_list {
    struct snapshot_held held[FSDP_SNAPSHOT_SLOTS];
};

/** Returns the size of a segment with slots of `slot_bytes` each; 0: it does not fit 64 bits. */
uint64_t snapshot_segment_bytes(uint64_t slot_bytes);

/** Writes the head of an empty segment with slots of `slot_bytes` each. */
void snapshot_lay_out(struct fsdp_snapshot_head *head, const struct snapshot_owner *owner,
                      uint64_t slot_bytes);

/**
 * Is this the head of a segment of `segment_bytes` bytes for `owner`, whose slots have at least `slot_bytes`?
 */
bool snapshot_fits(const struct fsdp_snapshot_head *head, const struct snapshot_owner *owner,
                   uint64_t slot_bytes, uint64_t segment_bytes);

/**
 * Empties all slots but the one with the snapshot that the ranks went back to; kept.step -1: all slots.
 * Without this, a segment could later hold snapshots from before and after going back, which do not belong
 * together.
 */
void snapshot_keep_only(struct fsdp_snapshot_head *head, struct snapshot_held kept);

/**
 * Returns the slot to fill next. It is never `busy` (-1: none), which is being written to the disk. A slot
 * that is not complete is chosen first, otherwise the older one.
 */
int snapshot_choose(const struct fsdp_snapshot_head *head, int busy);

/** Begins to fill a slot. From now on its old content is invalid. */
void snapshot_begin(struct fsdp_snapshot_head *head, int slot);

/* How the bytes of a filled slot are divided. */
struct snapshot_parts {
    uint64_t size_bytes, elsewhere_bytes, manifest_bytes;
};

/** Marks a slot as complete; its bytes must be in place. Returns the number of the filling. */
uint64_t snapshot_complete(struct fsdp_snapshot_head *head, int slot, int64_t step, uint32_t generation,
                           const struct snapshot_parts *parts);

/**
 * All words that describe a filling. snapshot_filling_of() reads them from one segment. snapshot_settle()
 * stores them in the head of another one, to which the bytes were copied, and marks that slot as complete.
 * `checksum` is that of the bytes.
 */
struct snapshot_filling {
    int64_t step;
    uint64_t number;
    uint32_t generation;
    struct snapshot_parts parts;
    uint64_t checksum[2];
};
struct snapshot_filling snapshot_filling_of(const struct fsdp_snapshot_head *head, int slot);
void snapshot_settle(struct fsdp_snapshot_head *head, int slot, const struct snapshot_filling *filling);

/** Says whether fillings are copied to another node from now on. That node has none of them yet. */
void snapshot_set_copying(struct fsdp_snapshot_head *head, bool copying);
/** Returns the complete slot to copy next, the older one first; -1: all complete slots were copied. */
int snapshot_uncopied(const struct fsdp_snapshot_head *head);
/** Notes that the other node has filling `number` of the slot. */
void snapshot_mark_copied(struct fsdp_snapshot_head *head, int slot, uint64_t number);
/** May the next filling begin? Not while a filling still has to be copied to the other node. */
bool snapshot_is_copied(const struct fsdp_snapshot_head *head);

/** Returns the complete slot with that step; -1: there is none. */
int snapshot_find(const struct fsdp_snapshot_head *head, int64_t step);

/**
 * Is the slot complete with filling `number`, and are its bytes within a segment of `segment_bytes`? Another
 * process may have written the head, so its values are not trusted.
 */
bool snapshot_is(const struct fsdp_snapshot_head *head, int slot, uint64_t number, uint64_t segment_bytes);

/**
 * Lists the complete snapshots in a head. If the head belongs to another rank or world size, the list is
 * empty.
 */
struct snapshot_list snapshot_list_of(const struct fsdp_snapshot_head *head, uint32_t rank,
                                      uint32_t world_size);

/** Is that step of that generation in the list? */
bool snapshot_list_has(const struct snapshot_list *list, struct snapshot_held held);
/** Returns the entries that are in both lists, with the same step and generation. */
struct snapshot_list snapshot_list_both(const struct snapshot_list *a, const struct snapshot_list *b);

/** Returns a list without entries. */
struct snapshot_list snapshot_list_empty(void);

#endif
