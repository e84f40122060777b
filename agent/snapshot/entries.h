/*
 * Snapshots of programs. An entry is a file or a directory that a program has renamed to its final name in
 * FSDPRUN_SNAPSHOT_DIR. Each node has its part of it. This module is the coordinator's knowledge of which
 * node has which entry.
 *
 * An entry is whole if every node of the generation has it, in the seat in which it was written, and has
 * renamed the name as often as the others. So a name that is used again is whole only when all nodes have
 * used it again.
 *
 * Pure.
 */
#ifndef AGENT_ENTRIES_H
#define AGENT_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>

enum { ENTRY_NAME_BYTES = 200, ENTRIES_MAX = 64 };

/* An entry on one node. */
struct snapshot_entry {
    char name[ENTRY_NAME_BYTES]; /* no slash in it, and no dot at its begin */
    int number;                  /* how often the node has renamed something to this name */
    int first_rank, world_size;  /* the seat in which the node did */
    /* the coordinator has said that all nodes have it; this node then has their small files too */
    bool complete;
    /*
     * true: another report with more small files follows; the node counts as having the entry only after the
     * last report
     */
    bool more;
    const char *files; /* (files_bytes) small files of it, as entry_pack() makes them; borrowed */
    size_t files_bytes;
};

/* A node of a generation. */
struct entry_seat {
    int node, first_rank;
};

struct entries;

/** NULL: out of memory. */
struct entries *entries_create(void);
void entries_destroy(struct entries *entries); /* NULL is a no-op */

/**
 * Notes that the node has that entry. If there are ENTRIES_MAX names already, a new one replaces the name
 * that was reported first. Returns false if there is no memory: the entry then counts as absent.
 */
bool entries_take(struct entries *entries, int node, const struct snapshot_entry *entry);

/** Forget the entries of `node`, because another agent has that node number now. */
void entries_forget(struct entries *entries, int node);

/** Returns whether the nodes of all `n` seats have the entry, as written by a world of world_size ranks. */
bool entries_is_whole(const struct entries *entries, const char *name, const struct entry_seat *seats, int n,
                      int world_size);

/** All nodes that have the entry were told that it is complete. */
void entries_mark_complete(struct entries *entries, const char *name);

/**
 * Returns the newest name for which entries_is_whole() is true and each node was told so. NULL: there is
 * none. Valid until the next call.
 */
const char *entries_newest(const struct entries *entries, const struct entry_seat *seats, int n,
                           int world_size);

/** May this be the name of an entry? */
bool entry_name_is_valid(const char *name);

#endif
