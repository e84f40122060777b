#include "agent/members/quarantine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY_AT_FIRST = 4 };

void quarantine_fini(struct quarantine *quarantine)
{
    free(quarantine->nodes);
    *quarantine = (struct quarantine){ 0 };
}

/* Returns the address of a node that stays the same when it comes again. */
static const char *address_of(const struct roster_node *node)
{
    return node->who.address[0] != '\0' ? node->who.address : node->from;
}

static bool agrees(const struct quarantine_node *at, const struct roster_node *node)
{
    return at->order == node->who.order && at->node_rank == node->who.node_rank &&
           strcmp(at->host, node->who.host) == 0 && strcmp(at->address, address_of(node)) == 0;
}

/* Returns the entry of a node that is away and agrees with this one: of several, the one lost last. */
static struct quarantine_node *find_away(const struct quarantine *quarantine, const struct roster_node *node)
{
    struct quarantine_node *found = NULL;

    for (int i = 0; i < quarantine->n; i++) {
        struct quarantine_node *at = &quarantine->nodes[i];

        if (at->number < 0 && agrees(at, node) && (found == NULL || at->lost_ms > found->lost_ms))
            found = at;
    }
    return found;
}

static struct quarantine_node *find_here(const struct quarantine *quarantine, int number)
{
    for (int i = 0; i < quarantine->n; i++)
        if (quarantine->nodes[i].number == number)
            return &quarantine->nodes[i];
    return NULL;
}

static struct quarantine_node *longest_ago(const struct quarantine *quarantine)
{
    struct quarantine_node *oldest = quarantine->nodes;

    for (int i = 1; i < quarantine->n; i++)
        if (quarantine->nodes[i].lost_ms < oldest->lost_ms)
            oldest = &quarantine->nodes[i];
    return oldest;
}

/* Returns a free entry, or NULL if there is no memory for it. */
static struct quarantine_node *make_room(struct quarantine *quarantine)
{
    if (quarantine->n == QUARANTINE_NODES)
        return longest_ago(quarantine);
    if (quarantine->n == quarantine->capacity) {
        const int capacity = quarantine->capacity == 0 ? CAPACITY_AT_FIRST : quarantine->capacity * 2;
        struct quarantine_node *nodes = realloc(quarantine->nodes, (size_t)capacity * sizeof *nodes);

        if (nodes == NULL)
            return NULL;
        quarantine->nodes = nodes;
        quarantine->capacity = capacity;
    }
    return &quarantine->nodes[quarantine->n++];
}

/* Takes the node that is there out of the world. Returns its entry, NULL without memory for one. */
static struct quarantine_node *take_out(struct quarantine *quarantine, int number,
                                        const struct roster_node *node, int64_t now_ms)
{
    struct quarantine_node *at = find_here(quarantine, number);

    if (at == NULL) {
        at = make_room(quarantine);
        if (at == NULL)
            return NULL;
        *at = (struct quarantine_node){
            .order = node->who.order, .node_rank = node->who.node_rank, .number = number, .free_ms = now_ms
        };
        snprintf(at->host, sizeof at->host, "%s", node->who.host);
        snprintf(at->address, sizeof at->address, "%s", address_of(node));
    }
    if (now_ms > at->free_ms) {
        const int64_t forgotten = (now_ms - at->free_ms) / QUARANTINE_FORGET_MS;

        at->strikes = forgotten < at->strikes ? at->strikes - (int)forgotten : 0;
    }
    at->lost_ms = now_ms;
    return at;
}

void quarantine_lost(struct quarantine *quarantine, int number, const struct roster_node *node,
                     int64_t now_ms)
{
    struct quarantine_node *at = take_out(quarantine, number, node, now_ms);

    if (at == NULL)
        return;
    at->strikes++;
    at->number = -1;
}

void quarantine_put_aside(struct quarantine *quarantine, int number, const struct roster_node *node,
                          int slow_rank, int64_t now_ms, int64_t wait_ms)
{
    struct quarantine_node *at = take_out(quarantine, number, node, now_ms);

    if (at == NULL)
        return;
    at->slow_rank = slow_rank;
    at->aside_ms = at->free_ms = now_ms + wait_ms;
}

void quarantine_gone(struct quarantine *quarantine, int number)
{
    struct quarantine_node *at = find_here(quarantine, number);

    if (at != NULL)
        at->number = -1;
}

int64_t quarantine_came(struct quarantine *quarantine, int number, const struct roster_node *node,
                        int64_t now_ms, struct quarantine_why *why)
{
    struct quarantine_node *at = find_away(quarantine, node);
    int64_t wait_ms = 0;

    *why = (struct quarantine_why){ at == NULL ? 0 : at->strikes, -1 };
    if (at == NULL)
        return 0;
    at->number = number;
    for (int i = 1; i < at->strikes && wait_ms < QUARANTINE_MOST_MS; i++)
        wait_ms = wait_ms == 0 ? QUARANTINE_FIRST_MS : 2 * wait_ms;
    if (wait_ms > QUARANTINE_MOST_MS)
        wait_ms = QUARANTINE_MOST_MS;
    if (at->aside_ms > now_ms + wait_ms) {
        wait_ms = at->aside_ms - now_ms;
        why->slow_rank = at->slow_rank;
    }
    at->free_ms = now_ms + wait_ms;
    return wait_ms;
}
