/*
 * A hash table of entries that their owner allocates. An owner's struct contains a struct table_entry, by
 * which the table links it. The owner computes the hashes and compares the keys, so keys may be of any kind.
 * Several entries may have one key.
 *
 * A table of zero bytes is empty. The slots double whenever there is one entry for each, so a search takes
 * constant time. If there is no memory for more slots, searches take longer, and nothing fails.
 */
#ifndef CORE_TABLE_H
#define CORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_entry {
    struct table_entry *next; /* in the same slot */
    uint64_t hash;
};

struct table {
    struct table_entry **slots; /* (n_slots), a power of two; NULL: nothing was ever added */
    size_t n_slots, n_entries;
};

/** Returns the owner's struct, of type `type`, whose member `member` is the entry. */
#define TABLE_OWNER(entry, type, member) ((type *)(void *)((char *)(entry)-offsetof(type, member)))

/** The first entry with this hash; NULL: there is none. Entries with other keys may have the same hash. */
struct table_entry *table_first(const struct table *table, uint64_t hash);
/** The next entry with the same hash as this one; NULL: there is none. */
struct table_entry *table_next(const struct table_entry *entry);

/** Add an entry. False: there is no memory for the first slots, and nothing was added. */
bool table_add(struct table *table, struct table_entry *entry, uint64_t hash);
/** Take out an entry that is in the table. */
void table_remove(struct table *table, struct table_entry *entry);
/**
 * Take out all entries and free the slots. Returns the entries as a list, linked by `next`. The table is
 * empty afterwards.
 */
struct table_entry *table_empty(struct table *table);

#endif
