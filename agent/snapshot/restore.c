#include "agent/snapshot/restore.h"

#include <string.h>

/*
 * How many steps are considered. The nodes hold the same few steps, so a step that only some of them have
 * cannot be there for every rank.
 */
enum { CANDIDATES = 8 };

struct candidates {
    struct snapshot_held held[CANDIDATES]; /* newest first */
    int n;
};

static void add(struct candidates *all, struct snapshot_held held)
{
    int at = 0;

    while (at < all->n && (all->held[at].step > held.step ||
                           (all->held[at].step == held.step && all->held[at].generation > held.generation)))
        at++;
    if (held.step < 0 || at == CANDIDATES ||
        (at < all->n && all->held[at].step == held.step && all->held[at].generation == held.generation))
        return;
    all->n += all->n < CANDIDATES;
    memmove(&all->held[at + 1], &all->held[at], (size_t)(all->n - 1 - at) * sizeof *all->held);
    all->held[at] = held;
}

static void cover(bool *covered, int n_seats, int n_ranks, int first_rank, int *n_covered)
{
    const int seat = first_rank < 0 || first_rank % n_ranks != 0 ? -1 : first_rank / n_ranks;

    if (seat < 0 || seat >= n_seats || covered[seat])
        return;
    covered[seat] = true;
    (*n_covered)++;
}

static bool is_everywhere(const struct restore_node *nodes, int n, int n_ranks, int n_seats, bool *covered,
                          struct snapshot_held step)
{
    int n_covered = 0;

    memset(covered, 0, (size_t)n_seats * sizeof *covered);
    for (int i = 0; i < n; i++) {
        const struct restore_steps *held = &nodes[i].held;

        if (held->world_size != n_seats * n_ranks)
            continue;
        if (snapshot_list_has(&held->own, step))
            cover(covered, n_seats, n_ranks, held->own_first_rank, &n_covered);
        if (snapshot_list_has(&held->copies, step))
            cover(covered, n_seats, n_ranks, held->copies_first_rank, &n_covered);
    }
    return n_covered == n_seats;
}

struct snapshot_held restore_choose(const struct restore_node *nodes, int n, int n_ranks, int n_seats,
                                    bool *covered)
{
    struct candidates all = { .n = 0 };

    for (int i = 0; i < n; i++)
        for (int k = 0; nodes[i].held.world_size == n_seats * n_ranks && k < FSDP_SNAPSHOT_SLOTS; k++) {
            add(&all, nodes[i].held.own.held[k]);
            add(&all, nodes[i].held.copies.held[k]);
        }
    for (int i = 0; n_seats > 0 && i < all.n; i++)
        if (is_everywhere(nodes, n, n_ranks, n_seats, covered, all.held[i]))
            return all.held[i];
    return (struct snapshot_held){ .step = -1 };
}

static bool has_own(const struct restore_node *node, struct snapshot_held step)
{
    return node->held.world_size > 0 && node->held.own_first_rank == node->seat &&
           snapshot_list_has(&node->held.own, step);
}

bool restore_swaps(const struct restore_node *node, struct snapshot_held step)
{
    return node->held.world_size > 0 && !has_own(node, step) && node->held.copies_first_rank == node->seat &&
           snapshot_list_has(&node->held.copies, step);
}

/* Will this node, when the generation begins, hold copies of `step` for the ranks of `seat`? */
static bool has_for(const struct restore_node *node, int seat, struct snapshot_held step)
{
    const bool swaps = restore_swaps(node, step);

    return node->held.world_size > 0 &&
           (swaps ? node->held.own_first_rank : node->held.copies_first_rank) == seat &&
           snapshot_list_has(swaps ? &node->held.own : &node->held.copies, step);
}

bool restore_sources(const struct restore_node *nodes, int n, int n_ranks, int n_seats,
                     struct snapshot_held step, int *at_seat, int *sources)
{
    bool all = true;

    for (int i = 0; i < n_seats; i++)
        at_seat[i] = -1;
    for (int i = 0; i < n; i++)
        if (nodes[i].seat >= 0 && nodes[i].seat / n_ranks < n_seats)
            at_seat[nodes[i].seat / n_ranks] = i;
    for (int i = 0; i < n; i++) {
        const int holder = nodes[i].seat < 0 ? -1 : at_seat[(nodes[i].seat / n_ranks + 1) % n_seats];

        sources[i] = -1;
        if (nodes[i].seat < 0)
            continue;
        if (has_own(&nodes[i], step) || restore_swaps(&nodes[i], step))
            sources[i] = i;
        else if (holder >= 0 && holder != i && has_for(&nodes[holder], nodes[i].seat, step))
            sources[i] = holder;
        all = all && sources[i] >= 0;
    }
    return all;
}
