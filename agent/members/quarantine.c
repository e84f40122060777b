#include "agent/members/quarantine.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { CAPACITY_AT_FIRST = 4 };

void quarantine_fini(struct quarantine *quarantine)
{
    free(quarantine->nodes);
    *quarantine = (struct quarantine){ 0 };
}

/* Returns the address of a node that is the same each time it joins. */
static const char *address_of(const struct roster_node *node)
{
    return node->who.address[0] != '\0' ? node->who.address : node->from;
}

uint64_t quarantine_name(const struct roster_node *node)
{
    const int numbers[] = { node->who.order, node->who.node_rank };
    uint64_t name = XXH3_64bits(numbers, sizeof numbers);

    name = XXH3_64bits_withSeed(node->who.host, strlen(node->who.host), name);
    name = XXH3_64bits_withSeed(address_of(node), strlen(address_of(node)), name);
    return name == 0 ? 1 : name;
}

/* Returns the entry of an absent node with that name. If there are several, the one that was lost last. */
static struct quarantine_node *find_away(const struct quarantine *quarantine, uint64_t name)
{
    struct quarantine_node *found = NULL;

    for (int i = 0; i < quarantine->n; i++) {
        struct quarantine_node *at = &quarantine->nodes[i];

        if (at->number < 0 && at->name == name && (found == NULL || at->lost_ms > found->lost_ms))
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

/* Returns the strikes of a node that is present, less those that are forgotten by now. */
static int strikes_left(const struct quarantine_node *at, int64_t now_ms)
{
    const int64_t forgotten = now_ms > at->free_ms ? (now_ms - at->free_ms) / QUARANTINE_FORGET_MS : 0;

    return forgotten < at->strikes ? at->strikes - (int)forgotten : 0;
}

/*
 * Marks the node with this number, which is present, as absent. Returns its entry; NULL: there is no memory
 * for one.
 */
static struct quarantine_node *take_out(struct quarantine *quarantine, int number,
                                        const struct roster_node *node, int64_t now_ms)
{
    struct quarantine_node *at = find_here(quarantine, number);

    if (at == NULL) {
        at = make_room(quarantine);
        if (at == NULL)
            return NULL;
        *at = (struct quarantine_node){ .name = quarantine_name(node), .number = number, .free_ms = now_ms };
    }
    at->strikes = strikes_left(at, now_ms);
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
    static const unsigned char no_run[PROTO_IDENTITY_BYTES];
    struct quarantine_node *at = find_away(quarantine, quarantine_name(node));
    int64_t wait_ms = 0;
    bool stays;

    *why = (struct quarantine_why){ at == NULL ? 0 : at->strikes, -1 };
    if (at == NULL)
        return 0;
    at->number = number;
    /*
     * `lost_by` shows that this agent took part before; an agent that was started again would be new, and its
     * node one that came back
     */
    stays = at->stays && memcmp(node->who.lost_by, no_run, sizeof no_run) != 0;
    at->stays = false;
    for (int i = 1; !stays && i < at->strikes && wait_ms < QUARANTINE_MOST_MS; i++)
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

/* Notes for another coordinator */

/*
 * Orders entries by how much the next coordinator needs them: nodes that were put aside, then nodes with the
 * most strikes.
 */
static int by_weight(const void *left, const void *right)
{
    const struct quarantine_note *a = left, *b = right;

    if ((a->aside_ms > 0) != (b->aside_ms > 0))
        return a->aside_ms > 0 ? -1 : 1;
    if (a->strikes != b->strikes)
        return a->strikes > b->strikes ? -1 : 1;
    return (a->name > b->name) - (a->name < b->name);
}

int quarantine_notes(const struct quarantine *quarantine, int64_t now_ms, struct quarantine_note *notes,
                     int most)
{
    struct quarantine_note all[QUARANTINE_NODES];
    int n = 0;

    for (int i = 0; i < quarantine->n; i++) {
        const struct quarantine_node *at = &quarantine->nodes[i];
        const bool here = at->number >= 0;

        all[n] = (struct quarantine_note){ .name = at->name,
                                           .strikes = here ? strikes_left(at, now_ms) : at->strikes,
                                           .stays = at->stays || (here && now_ms >= at->free_ms),
                                           .aside_ms = at->aside_ms > now_ms ? at->aside_ms - now_ms : 0,
                                           .slow_rank = at->slow_rank };
        n += all[n].strikes > 0 || all[n].aside_ms > 0;
    }
    qsort(all, (size_t)n, sizeof *all, by_weight);
    if (n > most)
        n = most;
    memcpy(notes, all, (size_t)n * sizeof *all);
    return n;
}

void quarantine_restore(struct quarantine *quarantine, const struct quarantine_note *note, int64_t now_ms)
{
    struct quarantine_node *at = make_room(quarantine);

    if (at != NULL)
        *at = (struct quarantine_node){ .name = note->name,
                                        .number = -1,
                                        .stays = note->stays,
                                        .strikes = note->strikes,
                                        .lost_ms = now_ms,
                                        .aside_ms = note->aside_ms > 0 ? now_ms + note->aside_ms : 0,
                                        .slow_rank = note->slow_rank };
}

void quarantine_lost_leader(struct quarantine *quarantine, uint64_t name, int64_t now_ms)
{
    struct quarantine_node *at = find_away(quarantine, name);

    if (at == NULL) {
        quarantine_restore(quarantine, &(struct quarantine_note){ .name = name, .strikes = 1 }, now_ms);
        return;
    }
    at->strikes++;
    at->stays = false;
}
