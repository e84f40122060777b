#include <string.h>

#include "agent/cluster/coordinator_impl.h"

/* Writes on the console and in events.jsonl that a node has to wait. */
static void report(struct coordinator *coordinator, int node, int strikes, int64_t wait_ms)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];
    char name[ROSTER_NAME_BYTES];

    console_say(coordinator->services.console,
                "fsdprun: %s has been lost %d times: it waits %lld s before it takes part again",
                roster_name(name, at->who.host, at->address), strikes, (long long)(wait_ms / 1000));
    coordinator_note(coordinator, "quarantine",
                     (struct events_field[]){ EVENT_TEXT("host", at->who.host),
                                              EVENT_TEXT("address", at->address), EVENT_INT("lost", strikes),
                                              EVENT_INT("seconds", wait_ms / 1000), EVENT_END });
}

/* Does what report() does, for a node with a slow rank. */
static void report_slow(struct coordinator *coordinator, int node, int slow_rank, int64_t wait_ms)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];
    char name[ROSTER_NAME_BYTES];

    if (!coordinator->config->quiet)
        console_say(coordinator->services.console,
                    "fsdprun: %s waits %lld min before it takes part again, because rank %d is slow",
                    roster_name(name, at->who.host, at->address), (long long)(wait_ms + 59999) / 60000,
                    slow_rank);
    coordinator_note(coordinator, "quarantine",
                     (struct events_field[]){ EVENT_TEXT("host", at->who.host),
                                              EVENT_TEXT("address", at->address),
                                              EVENT_INT("slow_rank", slow_rank),
                                              EVENT_INT("seconds", wait_ms / 1000), EVENT_END });
}

static void hold(struct coordinator *coordinator, int node, int64_t wait_ms, bool slow)
{
    struct coordinator_node *at = &coordinator->nodes[node];

    at->held_until_ms = coordinator_now_ms(coordinator) + (uint64_t)wait_ms;
    at->needed_ms = coordinator_now_ms(coordinator) + QUARANTINE_FIRST_MS;
    at->slow = slow;
    coordinator->n_held++;
    roster_hold(&coordinator->roster, node);
}

void coordinator_hold(struct coordinator *coordinator, int node)
{
    struct quarantine_why why;
    const int64_t wait_ms = quarantine_came(&coordinator->quarantine, node, &coordinator->roster.nodes[node],
                                            (int64_t)coordinator_now_ms(coordinator), &why);

    coordinator_release(coordinator, node);
    if (wait_ms == 0)
        return;
    hold(coordinator, node, wait_ms, why.slow_rank >= 0);
    if (why.slow_rank >= 0)
        report_slow(coordinator, node, why.slow_rank, wait_ms);
    else
        report(coordinator, node, why.strikes, wait_ms);
    coordinator_publish(coordinator);
}

void coordinator_note_suspects(const struct coordinator *coordinator, struct leader_progress *progress)
{
    struct quarantine_note notes[LEADER_SUSPECTS];
    const int n = quarantine_notes(&coordinator->quarantine, (int64_t)coordinator_now_ms(coordinator), notes,
                                   LEADER_SUSPECTS);

    memset(progress->suspects, 0, sizeof progress->suspects);
    progress->leader = coordinator_is_elastic(coordinator)
                           ? quarantine_name(&coordinator->roster.nodes[COORDINATOR_SELF])
                           : 0;
    for (int i = 0; i < n; i++) {
        const int64_t aside_s = (notes[i].aside_ms + 999) / 1000;

        progress->suspects[i] = (struct leader_suspect){
            .name = notes[i].name,
            .slow_rank = notes[i].slow_rank,
            .aside_s = (uint16_t)(aside_s < UINT16_MAX ? aside_s : UINT16_MAX),
            .strikes = (uint8_t)(notes[i].strikes < UINT8_MAX ? notes[i].strikes : UINT8_MAX),
            .stays = notes[i].stays
        };
    }
}

void coordinator_take_suspects(struct coordinator *coordinator, const struct leader_progress *progress)
{
    const int64_t now_ms = (int64_t)coordinator_now_ms(coordinator);

    for (int i = 0; i < LEADER_SUSPECTS && progress->suspects[i].name != 0; i++) {
        const struct leader_suspect *suspect = &progress->suspects[i];

        quarantine_restore(&coordinator->quarantine,
                           &(struct quarantine_note){ .name = suspect->name,
                                                      .strikes = suspect->strikes,
                                                      .stays = suspect->stays,
                                                      .aside_ms = suspect->aside_s * INT64_C(1000),
                                                      .slow_rank = suspect->slow_rank },
                           now_ms);
    }
    if (progress->leader != 0 &&
        progress->leader != quarantine_name(&coordinator->roster.nodes[COORDINATOR_SELF]))
        quarantine_lost_leader(&coordinator->quarantine, progress->leader, now_ms);
}

bool coordinator_set_aside(struct coordinator *coordinator, int node, int slow_rank, int64_t wait_ms)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];

    if (node == COORDINATOR_SELF || !roster_stays(at) || !roster_can_spare(&coordinator->roster, node))
        return false;
    hold(coordinator, node, wait_ms, true);
    quarantine_put_aside(&coordinator->quarantine, node, at, slow_rank,
                         (int64_t)coordinator_now_ms(coordinator), wait_ms);
    coordinator_publish(coordinator);
    coordinator_change(coordinator, true);
    report_slow(coordinator, node, slow_rank, wait_ms);
    return true;
}

void coordinator_release(struct coordinator *coordinator, int node)
{
    if (coordinator->nodes[node].held_until_ms == 0)
        return;
    coordinator->nodes[node].held_until_ms = 0;
    coordinator->n_held--;
    if (coordinator->nodes[node].n_unkilled == 0)
        roster_release(&coordinator->roster, node);
    coordinator_publish(coordinator);
}

/* Prints once that a node is left out, and once that it is taken in again. */
static void say_unkilled(struct coordinator *coordinator, int node)
{
    struct coordinator_node *at = &coordinator->nodes[node];
    const struct roster_node *who = &coordinator->roster.nodes[node];
    const int n = at->n_unkilled;
    char name[ROSTER_NAME_BYTES];

    if (at->said_unkilled == (n > 0))
        return;
    at->said_unkilled = n > 0;
    coordinator_name_of(coordinator, node, name);
    if (n > 0)
        console_say(coordinator->services.console,
                    "fsdprun: %s is left out until %d process%s of it, which cannot be killed, %s ended",
                    name, n, n == 1 ? "" : "es", n == 1 ? "has" : "have");
    else
        console_say(coordinator->services.console,
                    "fsdprun: %s takes part again: its processes that could not be killed have ended", name);
    coordinator_note(coordinator, "unkilled",
                     (struct events_field[]){ EVENT_TEXT("host", who->who.host),
                                              EVENT_TEXT("address", who->address), EVENT_INT("processes", n),
                                              EVENT_END });
}

/*
 * Processes that do not end may still use a file or a GPU that new ranks would get. So their node is held
 * back, unless it is the only node, because then no other can take its place.
 */
void coordinator_take_unkilled(struct coordinator *coordinator, int node, int n)
{
    struct coordinator_node *at = &coordinator->nodes[node];
    const bool was_held = at->n_unkilled > 0;

    if (!coordinator->roster.nodes[node].present || coordinator->config->n_nodes == 1 ||
        coordinator->state == CS_ENDED)
        return;
    at->n_unkilled = n;
    if (n > 0 && !was_held)
        roster_hold(&coordinator->roster, node);
    else if (n == 0 && was_held && at->held_until_ms == 0)
        roster_release(&coordinator->roster, node);
    if (n == 0 || !coordinator_is_up(coordinator) || !coordinator->roster.nodes[node].active)
        say_unkilled(coordinator, node); /* else once another generation follows */
}

void coordinator_tell_unkilled(struct coordinator *coordinator)
{
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator->roster.nodes[i].present && coordinator->nodes[i].n_unkilled > 0)
            say_unkilled(coordinator, i);
}

/*
 * Returns when the quarantine of a node ends. If the job cannot run without the node, that is
 * QUARANTINE_FIRST_MS from now at the latest, and before the job gives up waiting for nodes.
 */
static uint64_t end_of(const struct coordinator *coordinator, int node)
{
    const struct coordinator_node *at = &coordinator->nodes[node];
    uint64_t end = at->held_until_ms;

    if (roster_enough(&coordinator->roster))
        return end;
    if (end > at->needed_ms)
        end = at->needed_ms;
    if (coordinator->gather_until_ms != 0 && end > coordinator->gather_until_ms)
        end = coordinator->gather_until_ms;
    return end;
}

uint64_t coordinator_held_ms(const struct coordinator *coordinator)
{
    uint64_t first = 0;

    for (int i = 0; coordinator->n_held > 0 && i < coordinator->roster.capacity; i++)
        if (coordinator->nodes[i].held_until_ms != 0 && (first == 0 || end_of(coordinator, i) < first))
            first = end_of(coordinator, i);
    return first;
}

bool coordinator_release_due(struct coordinator *coordinator)
{
    const uint64_t now = coordinator_now_ms(coordinator);
    const int n_held = coordinator->n_held;

    for (int i = 0; coordinator->n_held > 0 && i < coordinator->roster.capacity; i++)
        if (coordinator->nodes[i].held_until_ms != 0 && now >= end_of(coordinator, i))
            coordinator_release(coordinator, i);
    return coordinator->n_held < n_held;
}
