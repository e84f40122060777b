/*
 * Agents that never come back. There are two kinds. A member that was let go has ended. A member that was
 * restored from an earlier state has forgotten what it was told: the numbers of its session show that
 * (agent/wire/session_agents.h), or the newest generation that its JOIN names. All members learn of these
 * agents, because each member may become the leader.
 */
#include <stdio.h>

#include "agent/cluster/coordinator_impl.h"

void coordinator_refuse(struct coordinator *coordinator, const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    if (coordinator->services.ended != NULL)
        ended_add(coordinator->services.ended, identity);
}

void coordinator_left(struct coordinator *coordinator, int node)
{
    coordinator_forget_away(coordinator, node);
    coordinator_refuse(coordinator, coordinator->roster.nodes[node].who.identity);
}

bool coordinator_never_again(struct coordinator *coordinator, const struct proto_join *join,
                             struct proto_refused *refused)
{
    const struct ended *ended = coordinator->services.ended;

    if (ended == NULL)
        return false;
    if (join->last_generation < coordinator_generation_of(coordinator, join->identity))
        coordinator_refuse(coordinator, join->identity);
    if (!ended_has(ended, join->identity))
        return false;
    refused->status = FSDP_EXIT_LINK;
    snprintf(
        refused->words, sizeof refused->words,
        "the agent of %.80s has left the job, or was restored from an earlier state, and is refused for good",
        join->host);
    return true;
}

void coordinator_tell_ended(const struct coordinator *coordinator, int node)
{
    const struct ended *ended = coordinator->services.ended;
    const struct coordinator_node *at = &coordinator->nodes[node];
    const struct proto_ended all = ended == NULL ? (struct proto_ended){ 0 } : ended_since(ended, 0);

    if (all.n > 0 && node != COORDINATOR_SELF)
        at->tell(at->member, PROTO_ENDED, coordinator->generation, &all);
}

void coordinator_tell_all_ended(struct coordinator *coordinator)
{
    const struct ended *ended = coordinator->services.ended;
    const struct proto_ended news =
        ended == NULL ? (struct proto_ended){ 0 } : ended_since(ended, coordinator->n_ended);

    for (int i = COORDINATOR_SELF + 1; news.n > 0 && i < coordinator->roster.capacity; i++)
        if (coordinator->roster.nodes[i].present)
            coordinator->nodes[i].tell(coordinator->nodes[i].member, PROTO_ENDED, coordinator->generation,
                                       &news);
    coordinator->n_ended = ended == NULL ? 0 : ended->n_added;
}
