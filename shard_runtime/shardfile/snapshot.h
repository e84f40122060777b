/*
 * The protocol of the slots of a snapshot segment (<fsdp/link.h>): which slot is filled next, which fillings
 * count, and for whom. The bytes of the slots are the callers' matter: checkpoint/snapshot.h fills and loads
 * them, the agent writes them to the disk.
 *
 * Pure. One process fills a segment at a time. Others may read its head at any time: also a copy of it, as an
 * agent makes that does not map the segment.
 */
#ifndef SHARDFILE_SNAPSHOT_H
#define SHARDFILE_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/link.h>

/* What a segment belongs to. A snapshot of anything else is no snapshot. */
struct snapshot_owner {
    uint32_t rank, world_size;
    uint64_t layout_hash;
};

/* A step that a rank, or all ranks of a node or world, have in memory. -1: none. */
struct snapshot_held {
    int64_t step;
    uint32_t generation; /* in which it was taken */
};

/* Every step that is held, newest first. Places that are not used have step -1. */
struct snapshot_list {
    struct snapshot_held held[FSDP_SNAPSHOT_SLOTS];
};

/** Returns the size of a segment whose slots have room for slot_bytes each; 0: it does not fit 64 bits. */
uint64_t snapshot_segment_bytes(uint64_t slot_bytes);

/** Lays out an empty segment of that size. */
void snapshot_lay_out(struct fsdp_snapshot_head *head, const struct snapshot_owner *owner,
                      uint64_t slot_bytes);

/** Is this the head of such a segment of `segment_bytes`, whose slots have room for slot_bytes at least? */
bool snapshot_fits(const struct fsdp_snapshot_head *head, const struct snapshot_owner *owner,
                   uint64_t slot_bytes, uint64_t segment_bytes);

/**
 * Forgets every snapshot but this one, to which the ranks went back; step -1: all. A segment that forgets
 * nothing might later hold two snapshots of different histories.
 */
void snapshot_keep_only(struct fsdp_snapshot_head *head, struct snapshot_held kept);

/**
 * Returns the slot to fill next: never `busy` (-1: none), which is being written to the disk; else one that
 * is not complete; else the older one.
 */
int snapshot_choose(const struct fsdp_snapshot_head *head, int busy);

/** Begins to fill a slot: from now on it does not count. */
void snapshot_begin(struct fsdp_snapshot_head *head, int slot);

/* How the bytes of a filled slot are divided. */
struct snapshot_parts {
    uint64_t size_bytes, elsewhere_bytes, manifest_bytes;
};

/** The bytes of the slot are in place: it counts. Returns the number of the filling. */
uint64_t snapshot_complete(struct fsdp_snapshot_head *head, int slot, int64_t step, uint32_t generation,
                           const struct snapshot_parts *parts);

/**
 * What a filling says of itself, when it comes from another segment: the slot gets all its words, and counts.
 * `checksum` is that of its bytes.
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

/** Fillings are copied to another node from now on, which has none of them; or they are not copied. */
void snapshot_set_copying(struct fsdp_snapshot_head *head, bool copying);
/** Returns the complete slot to copy next, the older one first; -1: each is copied. */
int snapshot_uncopied(const struct fsdp_snapshot_head *head);
/** The other node has that filling of the slot. */
void snapshot_mark_copied(struct fsdp_snapshot_head *head, int slot, uint64_t number);
/** May the next filling begin? Not while fillings are copied and one is not there yet. */
bool snapshot_is_copied(const struct fsdp_snapshot_head *head);

/** Returns the slot that holds `step`; -1: none does. */
int snapshot_find(const struct fsdp_snapshot_head *head, int64_t step);

/**
 * Is the slot complete by this filling, and do its bytes lie within a segment of `segment_bytes`? The head
 * may be another process's, and is not trusted.
 */
bool snapshot_is(const struct fsdp_snapshot_head *head, int slot, uint64_t number, uint64_t segment_bytes);

/** Lists what a head holds for this rank of this world. A head of another rank or world holds nothing. */
struct snapshot_list snapshot_list_of(const struct fsdp_snapshot_head *head, uint32_t rank,
                                      uint32_t world_size);

/** Does the list have that step of that generation? */
bool snapshot_list_has(const struct snapshot_list *list, struct snapshot_held held);
/** What both lists hold: the same step of the same generation. */
struct snapshot_list snapshot_list_both(const struct snapshot_list *a, const struct snapshot_list *b);

/** A list that holds nothing. */
struct snapshot_list snapshot_list_empty(void);

#endif
