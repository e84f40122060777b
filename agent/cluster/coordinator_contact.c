/*
 * Which agents could lead in this one's place, and when they last heard from it. A member stands for the lead
 * only when it has heard nothing for more than a lease. Its beats say which answer has reached it. What
 * counts is when this agent sent that answer, so a delay of the network cannot make the time too late.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "shard_runtime/core/clock.h"

void coordinator_heard(struct coordinator *coordinator, int node, int64_t answered_ns)
{
    struct coordinator_node *at = &coordinator->nodes[node];

    if (answered_ns > at->heard_ns)
        at->heard_ns = answered_ns;
}

void coordinator_note_away(struct coordinator *coordinator, int node)
{
    struct coordinator_away *away = coordinator->away;

    if (coordinator->services.lead.holds == NULL)
        return;
    if (coordinator->n_away == coordinator->away_capacity) {
        const int capacity = coordinator->away_capacity == 0 ? 16 : 2 * coordinator->away_capacity;

        away = realloc(away, (size_t)capacity * sizeof *away);
        if (away == NULL) {
            coordinator->unknown_away = true;
            return;
        }
        coordinator->away = away;
        coordinator->away_capacity = capacity;
    }
    away += coordinator->n_away++;
    memcpy(away->identity, coordinator->roster.nodes[node].who.identity, sizeof away->identity);
    away->heard_ns = coordinator->nodes[node].heard_ns;
    away->generation = coordinator->nodes[node].generation;
}

static int find_away(const struct coordinator *coordinator,
                     const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    for (int i = 0; i < coordinator->n_away; i++)
        if (memcmp(coordinator->away[i].identity, identity, PROTO_IDENTITY_BYTES) == 0)
            return i;
    return -1;
}

int coordinator_forget_agent(struct coordinator *coordinator, const unsigned char agent[PROTO_IDENTITY_BYTES])
{
    const int i = find_away(coordinator, agent);
    const int generation = i < 0 ? -1 : coordinator->away[i].generation;

    if (i >= 0)
        coordinator->away[i] = coordinator->away[--coordinator->n_away];
    return generation;
}

int coordinator_generation_of(const struct coordinator *coordinator,
                              const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    const int node = roster_find(&coordinator->roster, identity), away = find_away(coordinator, identity);

    if (node >= 0)
        return coordinator->nodes[node].generation;
    return away < 0 ? -1 : coordinator->away[away].generation;
}

bool coordinator_has_formed(const struct coordinator *coordinator)
{
    return coordinator->has_formed;
}

int coordinator_forget_away(struct coordinator *coordinator, int node)
{
    return coordinator_forget_agent(coordinator, coordinator->roster.nodes[node].who.identity);
}

int64_t coordinator_away_heard_ns(const struct coordinator *coordinator)
{
    int64_t first_ns = coordinator->unknown_away ? 0 : INT64_MAX;

    for (int i = 0; i < coordinator->n_away; i++)
        if (coordinator->away[i].heard_ns < first_ns)
            first_ns = coordinator->away[i].heard_ns;
    return first_ns;
}

int64_t coordinator_in_contact_until_ms(const struct coordinator *coordinator)
{
    const int64_t now_ns = clock_boot_ns(), away_ns = coordinator_away_heard_ns(coordinator);
    int64_t first_ns = away_ns < now_ns ? away_ns : now_ns;

    for (int i = COORDINATOR_SELF + 1; i < coordinator->roster.capacity; i++)
        if (coordinator->roster.nodes[i].present && coordinator->nodes[i].heard_ns < first_ns)
            first_ns = coordinator->nodes[i].heard_ns;
    return first_ns == 0 ? 0 : first_ns / 1000000 + coordinator->config->lease_ms;
}
