#include "shard_runtime/core/table.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 64 };

static struct table_entry **slot_of(const struct table *table, uint64_t hash)
{
    return &table->slots[hash & (table->n_slots - 1)];
}

static struct table_entry *same(struct table_entry *entry, uint64_t hash)
{
    while (entry != NULL && entry->hash != hash)
        entry = entry->next;
    return entry;
}

struct table_entry *table_first(const struct table *table, uint64_t hash)
{
    return table->n_slots == 0 ? NULL : same(*slot_of(table, hash), hash);
}

struct table_entry *table_next(const struct table_entry *entry)
{
    return same(entry->next, entry->hash);
}

static void link_in(const struct table *table, struct table_entry *entry)
{
    struct table_entry **slot = slot_of(table, entry->hash);

    entry->next = *slot;
    *slot = entry;
}

static void grow(struct table *table)
{
    struct table larger = { .n_slots = table->n_slots == 0 ? FIRST_SLOTS : 2 * table->n_slots,
                            .n_entries = table->n_entries };

    larger.slots = calloc(larger.n_slots, sizeof *larger.slots);
    if (larger.slots == NULL)
        return;
    for (size_t i = 0; i < table->n_slots; i++)
        for (struct table_entry *entry = table->slots[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            link_in(&larger, entry);
        }
    free(table->slots);
    *table = larger;
}

bool table_add(struct table *table, struct table_entry *entry, uint64_t hash)
{
    if (table->n_entries >= table->n_slots)
        grow(table);
    if (table->n_slots == 0)
        return false;
    entry->hash = hash;
    link_in(table, entry);
    table->n_entries++;
    return true;
}

void table_remove(struct table *table, struct table_entry *entry)
{
    struct table_entry **at = slot_of(table, entry->hash);

    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    table->n_entries--;
}

struct table_entry *table_empty(struct table *table)
{
    struct table_entry *all = NULL;

    for (size_t i = 0; i < table->n_slots; i++)
        for (struct table_entry *entry = table->slots[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            entry->next = all;
            all = entry;
        }
    free(table->slots);
    *table = (struct table){ 0 };
    return all;
}
