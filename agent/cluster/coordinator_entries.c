/*
 * Snapshots of programs (agent/snapshot/entries.h). When every node of the generation has a snapshot, the
 * coordinator tells all of them. The next generation resumes from the newest such snapshot, if the nodes have
 * the same seats.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"

/* Lists the nodes that have seats, in memory that the caller frees; NULL: there is no memory. */
static struct entry_seat *list_seats(const struct coordinator *coordinator, int *n)
{
    struct entry_seat *seats = calloc((size_t)coordinator->roster.capacity, sizeof *seats);

    *n = 0;
    for (int i = 0; seats != NULL && i < coordinator->roster.capacity; i++)
        if (coordinator_in_play(coordinator, i))
            seats[(*n)++] = (struct entry_seat){ i, coordinator->roster.nodes[i].first_rank };
    return seats;
}

static bool is_whole(const struct coordinator *coordinator, const char *name)
{
    int n;
    struct entry_seat *seats = list_seats(coordinator, &n);
    const bool whole =
        seats != NULL && entries_is_whole(coordinator->entries, name, seats, n, coordinator->world_size);

    free(seats);
    return whole;
}

void coordinator_report_entry(void *to, int generation, const struct snapshot_entry *entry)
{
    struct coordinator_node *node = to;
    struct coordinator *coordinator = node->coordinator;
    const int number = (int)(node - coordinator->nodes);
    struct snapshot_entry message = *entry;

    if (generation != coordinator->generation || !coordinator_is_up(coordinator) ||
        !coordinator_in_play(coordinator, number))
        return;
    if (coordinator->entries == NULL && (coordinator->entries = entries_create()) == NULL)
        return;
    message.complete = false;
    if (entry->files_bytes > 0)
        coordinator_tell_all(coordinator, number, PROTO_ENTRY, &message);
    if (entry->more || !entries_take(coordinator->entries, number, entry) ||
        !is_whole(coordinator, entry->name))
        return;
    entries_mark_complete(coordinator->entries, entry->name);
    message.complete = true;
    message.files_bytes = 0;
    coordinator_tell_all(coordinator, -1, PROTO_ENTRY, &message);
}

void coordinator_forget_entries(struct coordinator *coordinator, int node)
{
    if (coordinator->entries != NULL)
        entries_forget(coordinator->entries, node);
}

void coordinator_choose_entry(const struct coordinator *coordinator, struct world_plan *plan)
{
    struct entry_seat *seats;
    const char *name;
    int n;

    if (coordinator->entries == NULL)
        return;
    seats = list_seats(coordinator, &n);
    name = seats == NULL ? NULL : entries_newest(coordinator->entries, seats, n, plan->world_size);
    if (name != NULL)
        strcpy(plan->snapshot, name); /* both are as long */
    free(seats);
}
