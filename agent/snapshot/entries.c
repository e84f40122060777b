#include "agent/snapshot/entries.h"

#include <stdlib.h>
#include <string.h>

/* What a node has of a name. */
struct part {
    int number; /* 0: the node does not have it */
    int first_rank, world_size;
    bool complete;
};

struct row {
    char name[ENTRY_NAME_BYTES];
    struct part *parts; /* (capacity), by the number of the node */
    int n, capacity;    /* n nodes have it */
};

struct entries {
    struct row rows[ENTRIES_MAX]; /* (n) in the order in which the names were reported first */
    int n;
};

struct entries *entries_create(void)
{
    return calloc(1, sizeof(struct entries));
}

void entries_destroy(struct entries *entries)
{
    if (entries == NULL)
        return;
    for (int i = 0; i < entries->n; i++)
        free(entries->rows[i].parts);
    free(entries);
}

bool entry_name_is_valid(const char *name)
{
    const size_t length = strnlen(name, ENTRY_NAME_BYTES);

    return length > 0 && length < ENTRY_NAME_BYTES && name[0] != '.' && strchr(name, '/') == NULL;
}

static struct row *find(const struct entries *entries, const char *name)
{
    for (int i = 0; i < entries->n; i++)
        if (strcmp(entries->rows[i].name, name) == 0)
            return (struct row *)&entries->rows[i];
    return NULL;
}

static struct row *add_row(struct entries *entries, const char *name)
{
    struct row *row;

    if (entries->n == ENTRIES_MAX) {
        free(entries->rows[0].parts);
        memmove(&entries->rows[0], &entries->rows[1], sizeof *entries->rows * --entries->n);
    }
    row = &entries->rows[entries->n++];
    memset(row, 0, sizeof *row);
    strcpy(row->name, name); /* entries_take() has looked at its length */
    return row;
}

static struct part *part_of(struct row *row, int node)
{
    const int capacity = node < row->capacity ? row->capacity : node * 2 + 4;
    struct part *parts =
        node < row->capacity ? row->parts : realloc(row->parts, (size_t)capacity * sizeof *parts);

    if (parts == NULL)
        return NULL;
    memset(parts + row->capacity, 0, (size_t)(capacity - row->capacity) * sizeof *parts);
    row->parts = parts;
    row->capacity = capacity;
    return &parts[node];
}

bool entries_take(struct entries *entries, int node, const struct snapshot_entry *entry)
{
    struct row *row;
    struct part *part;

    if (!entry_name_is_valid(entry->name) || entry->number < 1)
        return false;
    row = find(entries, entry->name);
    if (row == NULL)
        row = add_row(entries, entry->name);
    part = part_of(row, node);
    if (part == NULL)
        return false;
    row->n += part->number == 0;
    *part = (struct part){ entry->number, entry->first_rank, entry->world_size, entry->complete };
    return true;
}

void entries_forget(struct entries *entries, int node)
{
    for (int i = 0; i < entries->n; i++) {
        struct row *row = &entries->rows[i];

        if (node < row->capacity && row->parts[node].number != 0) {
            row->parts[node].number = 0;
            row->n--;
        }
    }
}

/*
 * Returns whether all `n` seats have this entry. `told`: each node must also have been told that it is
 * complete.
 */
static bool is_whole(const struct row *row, const struct entry_seat *seats, int n, int world_size, bool told)
{
    for (int i = 0; i < n && row->n >= n; i++) {
        const struct part *part = seats[i].node < row->capacity ? &row->parts[seats[i].node] : NULL;

        if (part == NULL || part->number == 0 || part->world_size != world_size ||
            part->first_rank != seats[i].first_rank || part->number != row->parts[seats[0].node].number ||
            (told && !part->complete))
            return false;
    }
    return n > 0 && row->n >= n;
}

bool entries_is_whole(const struct entries *entries, const char *name, const struct entry_seat *seats, int n,
                      int world_size)
{
    const struct row *row = find(entries, name);

    return row != NULL && is_whole(row, seats, n, world_size, false);
}

void entries_mark_complete(struct entries *entries, const char *name)
{
    struct row *row = find(entries, name);

    for (int i = 0; row != NULL && i < row->capacity; i++)
        row->parts[i].complete = true;
}

const char *entries_newest(const struct entries *entries, const struct entry_seat *seats, int n,
                           int world_size)
{
    for (int i = entries->n; i > 0; i--)
        if (is_whole(&entries->rows[i - 1], seats, n, world_size, true))
            return entries->rows[i - 1].name;
    return NULL;
}
