#include "agent/members/roster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <fsdp/link.h>

const char *roster_name(char *out, const char *host, const char *address)
{
    if (address[0] == '\0')
        snprintf(out, ROSTER_NAME_BYTES, "%s", host);
    else
        snprintf(out, ROSTER_NAME_BYTES, "%s (%s)", host, address);
    return out;
}

static void give_number_back(struct roster *roster, int node)
{
    roster->free_numbers[roster->n_free++] = node;
}

enum fsdp_status roster_init(struct roster *roster, const struct proto_join *self, const char *address,
                             struct fsdp_err *err)
{
    *roster = (struct roster){ .min_nodes = self->min_nodes,
                               .max_nodes = self->n_nodes,
                               .capacity = self->n_nodes == 1 ? 1 : self->n_nodes + ROSTER_SPARES };
    roster->nodes = calloc((size_t)roster->capacity, sizeof *roster->nodes);
    roster->seats = calloc((size_t)roster->max_nodes, sizeof *roster->seats);
    roster->free_numbers = calloc((size_t)roster->capacity, sizeof *roster->free_numbers);
    roster->sorting = calloc((size_t)roster->capacity + (size_t)roster->max_nodes, sizeof *roster->sorting);
    roster->entries = calloc((size_t)roster->capacity, sizeof *roster->entries);
    if (roster->nodes == NULL || roster->seats == NULL || roster->free_numbers == NULL ||
        roster->sorting == NULL || roster->entries == NULL) {
        roster_fini(roster);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d nodes", self->n_nodes);
    }
    for (int seat = 0; seat < roster->max_nodes; seat++)
        roster->seats[seat].node = roster->seats[seat].asked = -1;
    for (int i = roster->capacity - 1; i >= 0; i--)
        give_number_back(roster, i);
    roster_add(roster, self, address);
    memcpy(roster->run, self->identity, sizeof roster->run);
    return FSDP_OK;
}

void roster_continue(struct roster *roster, const unsigned char run[PROTO_IDENTITY_BYTES], bool seated)
{
    memcpy(roster->run, run, sizeof roster->run);
    roster->seated = roster->continues = seated;
}

void roster_fini(struct roster *roster)
{
    table_empty(&roster->identities);
    free(roster->entries);
    free(roster->nodes);
    free(roster->seats);
    free(roster->free_numbers);
    free(roster->sorting);
    *roster = (struct roster){ 0 };
}

/* Agents that are there */

static uint64_t hash_of(const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    return XXH3_64bits(identity, PROTO_IDENTITY_BYTES);
}

int roster_find(const struct roster *roster, const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    for (struct table_entry *at = table_first(&roster->identities, hash_of(identity)); at != NULL;
         at = table_next(at)) {
        const int node = (int)(TABLE_OWNER(at, struct roster_identity, entry) - roster->entries);

        if (node != 0 && memcmp(roster->nodes[node].who.identity, identity, PROTO_IDENTITY_BYTES) == 0)
            return node;
    }
    return -1;
}

/* Nodes that may be let in */

const struct roster_node *roster_holder(const struct roster *roster, int node_rank)
{
    const struct roster_seat *seat = &roster->seats[node_rank];
    const int node = seat->node >= 0 ? seat->node : seat->asked;

    return node < 0 ? NULL : &roster->nodes[node];
}

/*
 * Compares a joining node with the host. Returns true if the node must be refused; then writes the
 * difference. Returns false otherwise.
 */
static bool differs(const struct roster *roster, const struct proto_join *join, const char *they,
                    const char *we, char *words, size_t size)
{
    const struct proto_join *self = &roster->nodes[0].who;

    if (strcmp(join->version, self->version) != 0)
        snprintf(words, size, "%.80s runs fsdprun %s, %.80s, which hosts, runs %s", they, join->version, we,
                 self->version);
    else if (join->n_nodes != self->n_nodes || join->min_nodes != self->min_nodes)
        snprintf(words, size, "%.80s was started for %d:%d nodes, %.80s, which hosts, for %d:%d", they,
                 join->min_nodes, join->n_nodes, we, self->min_nodes, self->n_nodes);
    else if (join->what != self->what)
        snprintf(
            words, size,
            "%.80s runs another job file or other overrides than %.80s, which hosts, or only one of them "
            "runs a job",
            they, we);
    else if (roster_is_job(roster) && join->n_workers != self->n_workers)
        snprintf(words, size,
                 "%.80s has %d workers, %.80s, which hosts, has %d: a job has the same number on every node",
                 they, join->n_workers, we, self->n_workers);
    else
        return false;
    return true;
}

bool roster_judge(const struct roster *roster, const struct proto_join *join, const char *address,
                  struct proto_refused *refused)
{
    static const unsigned char no_identity[PROTO_IDENTITY_BYTES];
    char they[ROSTER_NAME_BYTES], we[ROSTER_NAME_BYTES], other[ROSTER_NAME_BYTES];
    const struct roster_node *taken;

    refused->status = FSDP_EXIT_CONFIG;
    roster_name(they, join->host, address);
    roster_name(we, roster->nodes[0].who.host, roster->nodes[0].address);
    if (memcmp(join->lost_by, no_identity, sizeof no_identity) != 0 &&
        memcmp(join->lost_by, roster->run, sizeof no_identity) != 0) {
        refused->status = FSDP_EXIT_LINK;
        snprintf(refused->words, sizeof refused->words,
                 "%.80s was lost by an earlier run of the job; %.80s hosts another one", they, we);
        return false;
    }
    if (differs(roster, join, they, we, refused->words, sizeof refused->words))
        return false;
    if (join->node_rank >= roster->max_nodes || join->node_rank < -1 || join->n_workers < 1 ||
        join->n_workers > ROSTER_MAX_WORKERS) {
        snprintf(refused->words, sizeof refused->words,
                 "%.80s: there is no node rank %d to take among %d nodes, with %d workers", they,
                 join->node_rank, roster->max_nodes, join->n_workers);
        return false;
    }
    taken = join->node_rank < 0 ? NULL : roster_holder(roster, join->node_rank);
    if (taken != NULL) {
        snprintf(refused->words, sizeof refused->words,
                 "node rank %d is taken by %.80s; %.80s asks for it too", join->node_rank,
                 roster_name(other, taken->who.host, taken->address), they);
        return false;
    }
    if (roster->n_free == 0) {
        refused->status = FSDP_EXIT_PEER;
        snprintf(refused->words, sizeof refused->words,
                 "%.80s: %d nodes are there already, %d of them to spare", they, roster->capacity,
                 ROSTER_SPARES);
        return false;
    }
    return true;
}

int roster_add(struct roster *roster, const struct proto_join *join, const char *address)
{
    const int number = roster->free_numbers[--roster->n_free];
    struct roster_node *node = &roster->nodes[number];

    *node = (struct roster_node){
        .who = *join, .present = true, .seat = -1, .arrival = roster->n_arrived++, .node_rank = -1
    };
    snprintf(node->address, sizeof node->address, "%s", join->address[0] != '\0' ? join->address : address);
    snprintf(node->from, sizeof node->from, "%.63s", address);
    roster->entries[number].listed =
        table_add(&roster->identities, &roster->entries[number].entry, hash_of(join->identity));
    if (join->node_rank >= 0)
        roster->seats[join->node_rank].asked = number;
    roster->n_staying++;
    return number;
}

/* Takes the node out of the count of nodes that stay. */
static void discount(struct roster *roster, const struct roster_node *node)
{
    roster->n_staying--;
    roster->n_staying_here -= node->active;
}

void roster_hold(struct roster *roster, int node)
{
    struct roster_node *at = &roster->nodes[node];

    if (roster_stays(at))
        discount(roster, at);
    at->held = true;
}

void roster_release(struct roster *roster, int node)
{
    struct roster_node *at = &roster->nodes[node];

    at->held = false;
    roster->n_staying += roster_stays(at);
    roster->n_staying_here += roster_stays(at) && at->active;
}

void roster_leave(struct roster *roster, int node)
{
    struct roster_node *at = &roster->nodes[node];

    if (roster_stays(at))
        discount(roster, at);
    at->leaving = true;
}

void roster_remove(struct roster *roster, int node)
{
    struct roster_node *at = &roster->nodes[node];

    if (!at->present)
        return;
    if (roster_stays(at))
        discount(roster, at);
    at->present = false;
    if (roster->entries[node].listed)
        table_remove(&roster->identities, &roster->entries[node].entry);
    if (at->seat >= 0)
        roster->seats[at->seat].node = -1;
    else if (at->who.node_rank >= 0 && roster->seats[at->who.node_rank].asked == node)
        roster->seats[at->who.node_rank].asked = -1;
    if (!at->active)
        give_number_back(roster, node);
}

/* Counting the nodes */

int roster_n_present(const struct roster *roster)
{
    return roster->n_staying;
}

bool roster_enough(const struct roster *roster)
{
    return roster->n_staying >= roster->min_nodes && !roster->nodes[0].held;
}

bool roster_full(const struct roster *roster)
{
    return roster->n_staying >= roster->max_nodes && !roster->nodes[0].held;
}

bool roster_has_newcomers(const struct roster *roster)
{
    return roster->n_staying > roster->n_staying_here && roster->n_staying_here < roster->max_nodes;
}

bool roster_can_spare(const struct roster *roster, int node)
{
    return roster->n_staying - roster_stays(&roster->nodes[node]) >= roster->min_nodes;
}

/* The end of a generation */

/*
 * Makes a seat free for other nodes. A node in quarantine may lose its seat to another node, but no joining
 * node may ask for its node rank.
 */
static void free_seat(struct roster *roster, int node)
{
    struct roster_node *at = &roster->nodes[node];

    roster->seats[at->seat].node = -1;
    at->seat = -1;
    if (at->who.node_rank >= 0)
        roster->seats[at->who.node_rank].asked = node;
}

void roster_clear(struct roster *roster)
{
    for (int i = roster->capacity - 1; i >= 0; i--) {
        if (roster->nodes[i].present && roster->nodes[i].held && roster->nodes[i].seat >= 0)
            free_seat(roster, i);
        if (roster->nodes[i].active && !roster->nodes[i].present)
            give_number_back(roster, i);
        roster->nodes[i].active = false;
    }
    roster->n_staying_here = 0;
    roster->n_looked += (uint64_t)roster->capacity;
}
