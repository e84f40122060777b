#include "agent/watch/hang_graph.h"

#include <stdlib.h>

/*
 * Returns whether the rank has saved its part of a checkpoint, and waits until the whole checkpoint is
 * published.
 */
static bool is_publishing(const struct hang_rank *row)
{
    return row->waits && row->pass == FSDP_PHASE_SAVE;
}

static bool is_beginning(const struct hang_rank *row)
{
    return row->pass == FSDP_PHASE_START || row->pass == FSDP_PHASE_OPEN || row->pass == FSDP_PHASE_LOAD;
}

static int compare_members(const void *a, const void *b)
{
    const struct hang_member *x = a, *y = b;
    const int names = strcmp(x->group->name, y->group->name);

    if (names != 0)
        return names;
    if (x->group->begun != y->group->begun)
        return x->group->begun < y->group->begun ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool find_members(struct hang_graph *graph)
{
    size_t n = 0;

    for (int r = 0; r < graph->n; r++)
        n += (size_t)graph->rows[r].n_groups;
    graph->members = calloc(n + 1, sizeof *graph->members);
    graph->followed = calloc(n + 1, sizeof *graph->followed);
    if (graph->members == NULL || graph->followed == NULL)
        return false;
    for (int r = 0; r < graph->n; r++) {
        const struct hang_rank *row = &graph->rows[r];

        for (int g = 0; g < row->n_groups && row->answered && row->live; g++)
            if (row->groups[g].name[0] != '\0')
                graph->members[graph->n_members++] = (struct hang_member){ &row->groups[g], r };
    }
    qsort(graph->members, (size_t)graph->n_members, sizeof *graph->members, compare_members);
    return true;
}

/*
 * Returns the number of the group's first member that has begun collective number `sequence`; if `sequence`
 * is 0, of its first member.
 */
static int find_member(const struct hang_graph *graph, const char *name, uint64_t sequence)
{
    int low = 0, high = graph->n_members;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        const struct hang_group *group = graph->members[middle].group;
        const int names = strcmp(group->name, name);

        if (names < 0 || (names == 0 && group->begun < sequence))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void hang_graph_push(struct hang_graph *graph, int rank)
{
    if (rank < 0 || rank >= graph->n || graph->seen[rank] ||
        (graph->rows[rank].answered && !graph->rows[rank].live))
        return;
    graph->seen[rank] = true;
    graph->queue[graph->n_queued++] = rank;
}

/*
 * Pushes the ranks that have not opened the group yet, or whose node has not answered. Returns whether there
 * are any.
 */
static bool push_absent(struct hang_graph *graph, const struct hang_group *group, int first)
{
    int n = 0, n_absent = 0;
    bool *present;

    while (first + n < graph->n_members && strcmp(graph->members[first + n].group->name, group->name) == 0)
        n++;
    if (n >= group->size || group->stride <= 0 || group->size > graph->n)
        return false;
    present = calloc((size_t)graph->n, sizeof *present);
    for (int i = first; present != NULL && i < first + n; i++)
        present[graph->members[i].rank] = true;
    for (int i = 0; present != NULL && i < group->size; i++) {
        const int64_t rank = group->first + (int64_t)i * group->stride;

        if (rank < 0 || rank >= graph->n || present[rank] ||
            (graph->rows[rank].answered && !graph->rows[rank].live))
            continue;
        hang_graph_push(graph, (int)rank);
        n_absent++;
    }
    free(present);
    return n_absent > 0;
}

bool hang_graph_push_late(struct hang_graph *graph, const struct hang_rank *row)
{
    const struct hang_group *group = hang_group_of(row);
    const int first = find_member(graph, group->name, 0),
              end = find_member(graph, group->name, row->sequence);
    struct hang_followed *followed = &graph->followed[first];

    if (!followed->absent_known)
        followed->absent = push_absent(graph, group, first);
    followed->absent_known = true;
    for (; followed->n_late < end - first; followed->n_late++)
        hang_graph_push(graph, graph->members[first + followed->n_late].rank);
    return followed->absent || end > first;
}

const struct hang_inside *hang_graph_inside(struct hang_graph *graph, const struct hang_rank *row)
{
    const char *name = hang_group_of(row)->name;
    struct hang_inside *inside = &graph->followed[find_member(graph, name, 0)].inside;
    const struct hang_rank *first = NULL;

    if (inside->sequence == row->sequence)
        return inside;
    *inside = (struct hang_inside){ .sequence = row->sequence, .moving = -1 };
    for (int i = find_member(graph, name, row->sequence); i < graph->n_members; i++) {
        const struct hang_rank *other = &graph->rows[graph->members[i].rank];

        if (strcmp(graph->members[i].group->name, name) != 0)
            break;
        if (!hang_in_same(row, other))
            continue;
        first = first != NULL ? first : other;
        inside->mixed = inside->mixed || !hang_call_alike(first, other);
        if (!hang_is_suspect(other))
            inside->moving = other->rank;
    }
    return inside;
}

/*
 * For a rank whose collective all members have begun: pushes the ranks whose bytes it misses. Returns whether
 * there are any.
 */
static bool push_peers(struct hang_graph *graph, const struct hang_rank *row)
{
    int first = row->rank;
    bool any = false;

    if (row->peer >= 0 && row->peer < graph->n && row->peer != row->rank) {
        hang_graph_push(graph, row->peer);
        return !graph->rows[row->peer].answered || graph->rows[row->peer].live;
    }
    while (first > 0 && graph->rows[first - 1].node == row->node)
        first--;
    for (int r = first; r < graph->n && graph->rows[r].node == row->node; r++) {
        const struct hang_rank *other = &graph->rows[r];

        if (r == row->rank || !other->answered || !other->live || !hang_in_same(row, other) ||
            (other->peer < 0 && !hang_is_stopped(other) && !hang_is_held(other) && other->state != 'D'))
            continue;
        hang_graph_push(graph, r);
        any = true;
    }
    return any;
}

/* Pushes the ranks for whose answer this rank may wait. Returns whether there are any. */
static bool push_answerers(struct hang_graph *graph, const struct hang_rank *row)
{
    const bool publishing = is_publishing(row);
    struct hang_answerers *answerers = publishing ? &graph->publishing : &graph->opening;

    for (int r = 0; r < graph->n && !answerers->known; r++) {
        const struct hang_rank *other = &graph->rows[r];

        if (other->answered &&
            (!other->live || hang_is_waiting(other) || (!publishing && !is_beginning(other))))
            continue;
        answerers->any = true;
        hang_graph_push(graph, r);
    }
    answerers->known = true;
    return answerers->any;
}

bool hang_graph_follow(struct hang_graph *graph, const struct hang_rank *row)
{
    if (!row->answered || hang_is_stopped(row))
        return false;
    if (hang_is_inside(row) && hang_group_of(row)->name[0] == '\0')
        return false; /* its page gives the group no name, so its members cannot be found */
    if (hang_is_inside(row) && hang_graph_push_late(graph, row))
        return true;
    if (hang_is_inside(row) && hang_graph_inside(graph, row)->mixed) {
        graph->mismatch = graph->mismatch < 0 || row->rank < graph->mismatch ? row->rank : graph->mismatch;
        return true;
    }
    if (hang_is_inside(row))
        return !hang_is_held(row) && push_peers(graph, row);
    return row->waits && push_answerers(graph, row);
}

bool hang_graph_init(struct hang_graph *graph, const struct hang_rank *rows, int n)
{
    *graph = (struct hang_graph){ .rows = rows, .n = n, .mismatch = -1 };
    graph->seen = calloc((size_t)n + 1, sizeof *graph->seen);
    graph->queue = calloc((size_t)n + 1, sizeof *graph->queue);
    return graph->seen != NULL && graph->queue != NULL && find_members(graph);
}

void hang_graph_fini(struct hang_graph *graph)
{
    free(graph->members);
    free(graph->followed);
    free(graph->seen);
    free(graph->queue);
}
