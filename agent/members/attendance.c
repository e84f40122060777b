#include "agent/members/attendance.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct place {
    struct table_entry link;
    int node;
    char address[];
};

void attendance_fini(struct attendance *attendance)
{
    for (int i = 0; i < attendance->n_nodes; i++)
        free(attendance->nodes[i].known);
    free(attendance->nodes);
    for (struct table_entry *at = table_empty(&attendance->addresses), *next; at != NULL; at = next) {
        next = at->next;
        free(TABLE_OWNER(at, struct place, link));
    }
    memset(attendance, 0, sizeof *attendance);
}

bool attendance_begin(struct attendance *attendance, int n_nodes)
{
    attendance_fini(attendance);
    attendance->nodes = calloc((size_t)n_nodes, sizeof *attendance->nodes);
    attendance->n_nodes = attendance->nodes == NULL ? 0 : n_nodes;
    return attendance->nodes != NULL;
}

bool attendance_expect(struct attendance *attendance, int node, int n_workers)
{
    struct attendance_node *entry;

    if (node < 0 || node >= attendance->n_nodes)
        return false;
    entry = &attendance->nodes[node];
    entry->known = calloc((size_t)n_workers, sizeof *entry->known);
    entry->n_workers = entry->known == NULL ? 0 : n_workers;
    attendance->n_incomplete += entry->n_workers > 0;
    return entry->known != NULL;
}

bool attendance_add_address(struct attendance *attendance, int node, const char *address)
{
    const size_t length = strlen(address);
    struct place *place = malloc(sizeof *place + length + 1);

    if (place == NULL)
        return false;
    place->node = node;
    memcpy(place->address, address, length + 1);
    if (table_add(&attendance->addresses, &place->link, XXH3_64bits(address, length)))
        return true;
    free(place);
    return false;
}

int attendance_node_at(struct attendance *attendance, const char *address)
{
    struct table_entry *at = table_first(&attendance->addresses, XXH3_64bits(address, strlen(address)));

    while (at != NULL) {
        struct table_entry *next = table_next(at);
        struct place *place = TABLE_OWNER(at, struct place, link);

        if (strcmp(place->address, address) == 0) {
            if (!attendance_node_complete(attendance, place->node))
                return place->node;
            table_remove(&attendance->addresses, at);
            free(place);
        }
        at = next;
    }
    return -1;
}

static bool knows(const struct attendance_node *entry, pid_t pid)
{
    for (int i = 0; i < entry->n_known; i++)
        if (entry->known[i] == pid)
            return true;
    return false;
}

void attendance_came(struct attendance *attendance, int node, pid_t pid)
{
    struct attendance_node *entry;
    bool was_complete;

    if (node < 0 || node >= attendance->n_nodes)
        return;
    entry = &attendance->nodes[node];
    was_complete = attendance_node_complete(attendance, node);
    if (pid == 0)
        entry->n_unknown += entry->n_unknown < entry->n_workers;
    else if (!knows(entry, pid) && entry->n_known < entry->n_workers)
        entry->known[entry->n_known++] = pid;
    attendance->n_incomplete -= !was_complete && attendance_node_complete(attendance, node);
}

bool attendance_node_complete(const struct attendance *attendance, int node)
{
    const struct attendance_node *entry = &attendance->nodes[node];

    return entry->n_known + entry->n_unknown >= entry->n_workers;
}

bool attendance_has(const struct attendance *attendance, int node, pid_t pid)
{
    if (node < 0 || node >= attendance->n_nodes || attendance->nodes[node].n_workers == 0)
        return false;
    return knows(&attendance->nodes[node], pid) || attendance_node_complete(attendance, node);
}

bool attendance_complete(const struct attendance *attendance)
{
    return attendance->n_nodes > 0 && attendance->n_incomplete == 0;
}
