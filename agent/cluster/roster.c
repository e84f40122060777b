#include "agent/cluster/roster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/link.h>

const char *roster_name(char *out, const char *host, const char *address)
{
    if (address[0] == '\0')
        snprintf(out, ROSTER_NAME_BYTES, "%s", host);
    else
        snprintf(out, ROSTER_NAME_BYTES, "%s (%s)", host, address);
    return out;
}

enum fsdp_status roster_init(struct roster *roster, const struct proto_join *self, const char *address,
                             struct fsdp_err *err)
{
    *roster = (struct roster){ .min_nodes = self->min_nodes,
                               .max_nodes = self->n_nodes,
                               .capacity = self->n_nodes == 1 ? 1 : self->n_nodes + ROSTER_SPARES };
    roster->nodes = calloc((size_t)roster->capacity, sizeof *roster->nodes);
    roster->seats = calloc((size_t)roster->max_nodes, sizeof *roster->seats);
    if (roster->nodes == NULL || roster->seats == NULL) {
        roster_fini(roster);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d nodes", self->n_nodes);
    }
    for (int seat = 0; seat < roster->max_nodes; seat++)
        roster->seats[seat].node = -1;
    roster_add(roster, self, address);
    return FSDP_OK;
}

void roster_fini(struct roster *roster)
{
    free(roster->nodes);
    free(roster->seats);
    *roster = (struct roster){ 0 };
}

/* --- who may come in ---------------------------------------------------------------------------------------------- */

static int free_number(const struct roster *roster)
{
    for (int i = 0; i < roster->capacity; i++)
        if (!roster->nodes[i].present && !roster->nodes[i].active)
            return i;
    return -1;
}

/* Who has, or has asked for, this rank; NULL: nobody. */
static const struct roster_node *holder(const struct roster *roster, int node_rank)
{
    for (int i = 0; i < roster->capacity; i++) {
        const struct roster_node *node = &roster->nodes[i];

        if (node->present && (node->seat >= 0 ? node->seat : node->who.node_rank) == node_rank)
            return node;
    }
    return NULL;
}

static bool is_job(const struct roster *roster)
{
    return roster->nodes[0].who.what != 0;
}

/* What differs between two nodes of one job, in the words of both; false: nothing that matters. */
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
    else if (is_job(roster) && join->n_workers != self->n_workers)
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
    char they[ROSTER_NAME_BYTES], we[ROSTER_NAME_BYTES], other[ROSTER_NAME_BYTES];
    const struct roster_node *taken = join->node_rank < 0 ? NULL : holder(roster, join->node_rank);

    refused->status = FSDP_EXIT_CONFIG;
    roster_name(they, join->host, address);
    roster_name(we, roster->nodes[0].who.host, roster->nodes[0].address);
    if (differs(roster, join, they, we, refused->words, sizeof refused->words))
        return false;
    if (join->node_rank >= roster->max_nodes || join->node_rank < -1 || join->n_workers < 1 ||
        join->n_workers > ROSTER_MAX_WORKERS) {
        snprintf(refused->words, sizeof refused->words,
                 "%.80s: there is no node rank %d to take among %d nodes, with %d workers", they,
                 join->node_rank, roster->max_nodes, join->n_workers);
        return false;
    }
    if (taken != NULL) {
        snprintf(refused->words, sizeof refused->words,
                 "node rank %d is taken by %.80s; %.80s asks for it too", join->node_rank,
                 roster_name(other, taken->who.host, taken->address), they);
        return false;
    }
    if (free_number(roster) < 0) {
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
    const int number = free_number(roster);
    struct roster_node *node = &roster->nodes[number];

    *node = (struct roster_node){
        .who = *join, .present = true, .seat = -1, .arrival = roster->n_arrived++, .node_rank = -1
    };
    snprintf(node->address, sizeof node->address, "%s", join->address[0] != '\0' ? join->address : address);
    snprintf(node->from, sizeof node->from, "%.63s", address);
    return number;
}

void roster_remove(struct roster *roster, int node)
{
    const int seat = roster->nodes[node].seat;

    roster->nodes[node].present = false;
    if (seat >= 0 && roster->seats[seat].node == node)
        roster->seats[seat].node = -1;
}

/* --- counting ------------------------------------------------------------------------------------------------------- */

static bool stays(const struct roster_node *node)
{
    return node->present && !node->leaving;
}

int roster_n_present(const struct roster *roster)
{
    int n = 0;

    for (int i = 0; i < roster->capacity; i++)
        n += stays(&roster->nodes[i]);
    return n;
}

bool roster_enough(const struct roster *roster)
{
    return roster_n_present(roster) >= roster->min_nodes;
}

bool roster_full(const struct roster *roster)
{
    return roster_n_present(roster) >= roster->max_nodes;
}

bool roster_has_newcomers(const struct roster *roster)
{
    int n_active = 0, n_waiting = 0;

    for (int i = 0; i < roster->capacity; i++) {
        n_active += stays(&roster->nodes[i]) && roster->nodes[i].active;
        n_waiting += stays(&roster->nodes[i]) && !roster->nodes[i].active;
    }
    return n_waiting > 0 && n_active < roster->max_nodes;
}

bool roster_can_spare(const struct roster *roster, int node)
{
    return roster_n_present(roster) - stays(&roster->nodes[node]) >= roster->min_nodes;
}

/* --- seats ---------------------------------------------------------------------------------------------------------- */

void roster_clear(struct roster *roster)
{
    for (int i = 0; i < roster->capacity; i++)
        roster->nodes[i].active = false;
}

static void sit(struct roster *roster, struct roster_node *node, int seat)
{
    node->seat = seat;
    roster->seats[seat].node = (int)(node - roster->nodes);
    snprintf(roster->seats[seat].host, sizeof roster->seats[seat].host, "%s", node->who.host);
    roster->seats[seat].order = node->who.order;
}

static bool waits(const struct roster_node *node)
{
    return stays(node) && node->seat < 0;
}

/* Does every node that waits have a number of the scheduler's, no two the same? */
static bool are_numbered(const struct roster *roster)
{
    for (int i = 0; i < roster->capacity; i++) {
        if (!waits(&roster->nodes[i]))
            continue;
        if (roster->nodes[i].who.order < 0)
            return false;
        for (int j = 0; j < i; j++)
            if (waits(&roster->nodes[j]) && roster->nodes[j].who.order == roster->nodes[i].who.order)
                return false;
    }
    return true;
}

/* Which of two comes first where neither has asked for a rank. */
static bool precedes(const struct roster *roster, const struct roster_node *a, const struct roster_node *b,
                     bool numbered)
{
    const bool a_hosts = a == &roster->nodes[0], b_hosts = b == &roster->nodes[0];
    int difference;

    if (roster->seated) /* who came later is to spare */
        return a->arrival < b->arrival;
    /* Of a job rank 0, which writes the head of its checkpoints, stays with the coordinator. */
    if ((!numbered || is_job(roster)) && a_hosts != b_hosts)
        return a_hosts;
    if (numbered)
        return a->who.order < b->who.order;
    difference = strverscmp(a->who.host, b->who.host);
    if (difference == 0)
        difference = strverscmp(a->address, b->address);
    return difference != 0 ? difference < 0 : a->arrival < b->arrival;
}

static struct roster_node *next_waiting(const struct roster *roster, bool numbered)
{
    struct roster_node *first = NULL;

    for (int i = 0; i < roster->capacity; i++)
        if (waits(&roster->nodes[i]) &&
            (first == NULL || precedes(roster, &roster->nodes[i], first, numbered)))
            first = &roster->nodes[i];
    return first;
}

/* Those that asked for a rank; then those that had a seat before they went. */
static void seat_those_with_a_claim(struct roster *roster)
{
    for (int i = 0; i < roster->capacity; i++) {
        struct roster_node *node = &roster->nodes[i];

        if (waits(node) && node->who.node_rank >= 0 && roster->seats[node->who.node_rank].node < 0)
            sit(roster, node, node->who.node_rank);
    }
    for (int i = 0; roster->seated && i < roster->capacity; i++) {
        struct roster_node *node = &roster->nodes[i];

        for (int seat = 0; waits(node) && seat < roster->max_nodes; seat++)
            if (roster->seats[seat].node < 0 && roster->seats[seat].order == node->who.order &&
                strcmp(roster->seats[seat].host, node->who.host) == 0)
                sit(roster, node, seat);
    }
}

/* Ranks in the order of seats; within a role the ranks of that role are counted. */
static void rank_them(struct roster *roster)
{
    roster->n_nodes = roster->world_size = 0;
    for (int seat = 0; seat < roster->max_nodes; seat++) {
        struct roster_node *node =
            roster->seats[seat].node < 0 ? NULL : &roster->nodes[roster->seats[seat].node];

        if (node == NULL || node->leaving)
            continue;
        node->active = true;
        node->node_rank = roster->n_nodes++;
        node->first_rank = roster->world_size;
        roster->world_size += node->who.n_workers;
    }
    for (int i = 0; i < roster->capacity; i++) {
        struct roster_node *node = &roster->nodes[i];

        node->role_rank = node->role_world_size = 0;
        for (int j = 0; node->active && j < roster->capacity; j++) {
            const struct roster_node *other = &roster->nodes[j];

            if (!other->active || strcmp(other->who.role, node->who.role) != 0)
                continue;
            node->role_world_size += other->who.n_workers;
            if (other->node_rank < node->node_rank)
                node->role_rank += other->who.n_workers;
        }
    }
}

void roster_seat(struct roster *roster)
{
    const bool numbered = are_numbered(roster);
    struct roster_node *node;

    seat_those_with_a_claim(roster);
    for (int seat = 0; seat < roster->max_nodes; seat++)
        if (roster->seats[seat].node < 0 && (node = next_waiting(roster, numbered)) != NULL)
            sit(roster, node, seat);
    roster->seated = true;
    rank_them(roster);
}
