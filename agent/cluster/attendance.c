#include "agent/cluster/attendance.h"

#include <stdlib.h>
#include <string.h>

void attendance_fini(struct attendance *attendance)
{
    for (int i = 0; i < attendance->n_nodes; i++)
        free(attendance->nodes[i].known);
    free(attendance->nodes);
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
    return entry->known != NULL;
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

    if (node < 0 || node >= attendance->n_nodes)
        return;
    entry = &attendance->nodes[node];
    if (pid == 0)
        entry->n_unknown += entry->n_unknown < entry->n_workers;
    else if (!knows(entry, pid) && entry->n_known < entry->n_workers)
        entry->known[entry->n_known++] = pid;
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
    for (int i = 0; i < attendance->n_nodes; i++)
        if (!attendance_node_complete(attendance, i))
            return false;
    return attendance->n_nodes > 0;
}
