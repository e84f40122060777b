/*
 * Until when ranks of lost nodes may run. No generation begins before that. The wait for an agent ends early
 * if its guard proves that no process of it is left (agent/wire/swept.h).
 *
 * After a take-over, this coordinator does not know the agents of the lost one. So it waits until no lease
 * that the lost one gave can run. The wait ends early if two things are known: the lost leader's own node is
 * swept (agent/arbiter/leader_swept.h), and how many nodes its newest generation had. Then this coordinator
 * waits until all other nodes of that generation have joined, because an agent joins only when its ranks are
 * gone. Ranks of older generations were gone before that generation began.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/os/deadlines.h"

/* Forgets lost agents whose ranks cannot run any more. */
static void drop_over(struct coordinator *coordinator)
{
    const uint64_t now_ms = coordinator_now_ms(coordinator);
    int n = 0;

    for (int i = 0; i < coordinator->n_fenced; i++)
        if (coordinator->fenced[i].until_ms > now_ms)
            coordinator->fenced[n++] = coordinator->fenced[i];
    coordinator->n_fenced = n;
}

static bool make_room(struct coordinator *coordinator)
{
    const int capacity = coordinator->fenced_capacity == 0 ? 16 : 2 * coordinator->fenced_capacity;
    struct coordinator_fenced *fenced;

    drop_over(coordinator);
    if (coordinator->n_fenced < coordinator->fenced_capacity)
        return true;
    fenced = realloc(coordinator->fenced, (size_t)capacity * sizeof *fenced);
    if (fenced == NULL)
        return false;
    coordinator->fenced = fenced;
    coordinator->fenced_capacity = capacity;
    return true;
}

void coordinator_fence(struct coordinator *coordinator, int node)
{
    const struct coordinator_node *at = &coordinator->nodes[node];
    const uint64_t until_ms = at->granted_ms + (uint64_t)LEASE_FENCE_MS(coordinator->config->lease_ms);
    struct coordinator_fenced *fenced;

    if (at->granted_ms == 0 || at->stopped)
        return;
    if (!make_room(coordinator)) {
        if (until_ms > coordinator->fenced_until_ms)
            coordinator->fenced_until_ms = until_ms;
        return;
    }
    fenced = &coordinator->fenced[coordinator->n_fenced++];
    memcpy(fenced->identity, coordinator->roster.nodes[node].who.identity, sizeof fenced->identity);
    fenced->until_ms = until_ms;
}

bool coordinator_unfence(struct coordinator *coordinator, const unsigned char agent[PROTO_IDENTITY_BYTES])
{
    const uint64_t now_ms = coordinator_now_ms(coordinator);
    const int n_before = coordinator->n_fenced;
    int n = 0;

    for (int i = 0; i < n_before; i++)
        if (memcmp(coordinator->fenced[i].identity, agent, PROTO_IDENTITY_BYTES) != 0)
            coordinator->fenced[n++] = coordinator->fenced[i];
    coordinator->n_fenced = n;
    if (n < n_before && coordinator->fenced_until_ms < now_ms)
        /* for the timeline: ranks of this agent could run until this proof came */
        coordinator->fenced_until_ms = now_ms;
    return n < n_before;
}

/* Ends the fence now. The timeline gets the present time, because ranks could run until now. */
static void end_fence(struct coordinator *coordinator)
{
    const uint64_t now_ms = coordinator_now_ms(coordinator);

    if (coordinator->fenced_until_ms > now_ms)
        coordinator->fenced_until_ms = now_ms;
}

void coordinator_await(struct coordinator *coordinator, const struct coordinator_past *past)
{
    struct coordinator_awaited *awaited = &coordinator->awaited;
    const int n_nodes = past->progress.n_nodes;

    if (!past->swept || n_nodes < 1 || n_nodes > coordinator->roster.max_nodes)
        return;
    awaited->came = calloc((size_t)n_nodes, sizeof *awaited->came);
    if (awaited->came == NULL)
        return;
    awaited->generation = past->progress.generation;
    awaited->n = awaited->n_nodes = n_nodes;
    coordinator_came(coordinator, awaited->generation, past->progress.node_rank);
    if (past->took_part)
        coordinator_came(coordinator, awaited->generation, past->node_rank);
}

void coordinator_came(struct coordinator *coordinator, int generation, int node_rank)
{
    struct coordinator_awaited *awaited = &coordinator->awaited;

    if (awaited->n == 0 || generation != awaited->generation || node_rank < 0 ||
        node_rank >= awaited->n_nodes || awaited->came[node_rank])
        return;
    awaited->came[node_rank] = true;
    if (--awaited->n == 0)
        end_fence(coordinator);
}

uint64_t coordinator_fenced_until_ms(const struct coordinator *coordinator)
{
    uint64_t until_ms = coordinator->fenced_until_ms;

    for (int i = 0; i < coordinator->n_fenced; i++)
        if (coordinator->fenced[i].until_ms > until_ms)
            until_ms = coordinator->fenced[i].until_ms;
    return until_ms;
}
