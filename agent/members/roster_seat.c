/*
 * How the nodes of a generation get their seats and ranks. Node numbers and seats are sorted, so no step
 * compares each node with every other one.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/members/roster.h"

static void sit(struct roster *roster, int number, int seat)
{
    struct roster_node *node = &roster->nodes[number];
    const int asked = node->who.node_rank;

    node->seat = seat;
    roster->seats[seat].node = number;
    memcpy(roster->seats[seat].host, node->who.host, sizeof roster->seats[seat].host);
    roster->seats[seat].order = node->who.order;
    if (asked >= 0 && roster->seats[asked].asked == number)
        roster->seats[asked].asked = -1;
}

/* Lists the nodes that stay but have no seat. Returns their number. */
static int list_waiting(struct roster *roster, int *waiting)
{
    int n = 0;

    for (int i = 0; i < roster->capacity; i++)
        if (roster_stays(&roster->nodes[i]) && roster->nodes[i].seat < 0)
            waiting[n++] = i;
    roster->n_looked += (uint64_t)roster->capacity;
    return n;
}

static int list_free_seats(struct roster *roster, int *seats)
{
    int n = 0;

    for (int seat = 0; seat < roster->max_nodes; seat++)
        if (roster->seats[seat].node < 0)
            seats[n++] = seat;
    roster->n_looked += (uint64_t)roster->max_nodes;
    return n;
}

/* The order of the scheduler's numbers */

static int by_order(const void *a, const void *b, void *arg)
{
    struct roster *roster = arg;
    const int left = roster->nodes[*(const int *)a].who.order,
              right = roster->nodes[*(const int *)b].who.order;

    roster->n_looked++;
    return (left > right) - (left < right);
}

/* Returns whether every waiting node has a number from the scheduler, and no two have the same one. */
static bool are_numbered(struct roster *roster, int *waiting, int n)
{
    qsort_r(waiting, (size_t)n, sizeof *waiting, by_order, roster);
    for (int i = 0; i < n; i++)
        if (roster->nodes[waiting[i]].who.order < 0 ||
            (i > 0 && by_order(&waiting[i - 1], &waiting[i], roster) == 0))
            return false;
    return true;
}

/* Nodes with a claim */

/*
 * Seats the coordinator's node. Rank 0 of a trainer's job writes the head of its checkpoints, so it must be
 * there. In such a job this node is seated before all others: in the seat that it asked for or had, or in the
 * first one. It takes a seat that another node asked for only if no other is free.
 */
static void seat_the_host(struct roster *roster)
{
    const struct proto_join *who = &roster->nodes[0].who;
    const int wanted = who->node_rank >= 0 ? who->node_rank : who->last_node_rank;
    int best = -1, least = 4;

    for (int seat = 0; seat < roster->max_nodes; seat++) {
        const int cost = (roster->seats[seat].asked > 0 ? 2 : 0) + (seat != wanted);

        if (roster->seats[seat].node < 0 && cost < least) {
            best = seat;
            least = cost;
        }
    }
    roster->n_looked += (uint64_t)roster->max_nodes;
    if (best >= 0)
        sit(roster, 0, best);
}

/* Seats the nodes that asked for a node rank. Returns how many nodes are left in `waiting`. */
static int seat_who_asked(struct roster *roster, int *waiting, int n)
{
    int n_left = 0;

    for (int i = 0; i < n; i++) {
        const int asked = roster->nodes[waiting[i]].who.node_rank;

        if (asked >= 0 && roster->seats[asked].node < 0)
            sit(roster, waiting[i], asked);
        else
            waiting[n_left++] = waiting[i];
    }
    roster->n_looked += (uint64_t)n;
    return n_left;
}

static int by_last_place(const void *a, const void *b, void *arg)
{
    struct roster *roster = arg;
    const int i = *(const int *)a, j = *(const int *)b;
    const int left = roster->nodes[i].who.last_node_rank, right = roster->nodes[j].who.last_node_rank;

    roster->n_looked++;
    return left != right ? (left > right) - (left < right) : (i > j) - (i < j);
}

/*
 * Seats the nodes that had a seat under an earlier coordinator. Each gets the same seat, or the next one that
 * is free, so their order stays the same. Returns how many nodes are left in `waiting`.
 */
static int seat_who_sat(struct roster *roster, int *waiting, int n)
{
    int n_left = 0, seat = 0;

    qsort_r(waiting, (size_t)n, sizeof *waiting, by_last_place, roster);
    for (int i = 0; i < n; i++) {
        const int last = roster->nodes[waiting[i]].who.last_node_rank;

        if (last >= 0 && seat < last)
            seat = last;
        while (last >= 0 && seat < roster->max_nodes && roster->seats[seat].node >= 0)
            seat++;
        if (last >= 0 && seat < roster->max_nodes)
            sit(roster, waiting[i], seat);
        else
            waiting[n_left++] = waiting[i];
    }
    return n_left;
}

static int compare_places(struct roster *roster, const char *host_a, int order_a, const char *host_b,
                          int order_b)
{
    const int hosts = strcmp(host_a, host_b);

    roster->n_looked++;
    return hosts != 0 ? hosts : (order_a > order_b) - (order_a < order_b);
}

static int nodes_by_place(const void *a, const void *b, void *arg)
{
    struct roster *roster = arg;
    const int i = *(const int *)a, j = *(const int *)b;
    const struct proto_join *left = &roster->nodes[i].who, *right = &roster->nodes[j].who;
    const unsigned first = roster->nodes[i].arrival, second = roster->nodes[j].arrival;
    const int places = compare_places(roster, left->host, left->order, right->host, right->order);

    return places != 0 ? places : (first > second) - (first < second);
}

static int seats_by_place(const void *a, const void *b, void *arg)
{
    struct roster *roster = arg;
    const int i = *(const int *)a, j = *(const int *)b;
    const struct roster_seat *left = &roster->seats[i], *right = &roster->seats[j];
    const int places = compare_places(roster, left->host, left->order, right->host, right->order);

    return places != 0 ? places : (i > j) - (i < j);
}

/*
 * Gives each waiting node that came back its old seat, if that is free: one that a node of the same host and
 * order had last. `seats` is room for max_nodes numbers. Returns how many nodes are left in `waiting`.
 */
static int seat_who_returned(struct roster *roster, int *waiting, int n, int *seats)
{
    const int n_seats = list_free_seats(roster, seats);
    int n_left = 0, at = 0;

    qsort_r(waiting, (size_t)n, sizeof *waiting, nodes_by_place, roster);
    qsort_r(seats, (size_t)n_seats, sizeof *seats, seats_by_place, roster);
    for (int i = 0; i < n; i++) {
        const struct proto_join *who = &roster->nodes[waiting[i]].who;
        int difference = 1;

        while (at < n_seats &&
               (difference = compare_places(roster, who->host, who->order, roster->seats[seats[at]].host,
                                            roster->seats[seats[at]].order)) > 0)
            at++;
        if (at < n_seats && difference == 0)
            sit(roster, waiting[i], seats[at++]);
        else
            waiting[n_left++] = waiting[i];
    }
    return n_left;
}

/* The others */

struct precedence {
    struct roster *roster;
    bool numbered;
};

/* Orders nodes that have no claim to a certain seat by who is seated first. */
static int by_precedence(const void *left, const void *right, void *arg)
{
    const struct precedence *precedence = arg;
    struct roster *roster = precedence->roster;
    const struct roster_node *a = &roster->nodes[*(const int *)left],
                             *b = &roster->nodes[*(const int *)right];
    const bool a_hosts = a == &roster->nodes[0], b_hosts = b == &roster->nodes[0];
    const int arrivals = (a->arrival > b->arrival) - (a->arrival < b->arrival);
    int difference;

    roster->n_looked++;
    if (roster->seated) /* once the job has run, nodes that come later are spares, and come last */
        return arrivals;
    if (!precedence->numbered && a_hosts != b_hosts)
        return a_hosts ? -1 : 1;
    if (precedence->numbered)
        return (a->who.order > b->who.order) - (a->who.order < b->who.order);
    difference = strverscmp(a->who.host, b->who.host);
    if (difference == 0)
        difference = strverscmp(a->address, b->address);
    return difference != 0 ? difference : arrivals;
}

static void seat_the_others(struct roster *roster, int *waiting, int n, int *seats, bool numbered)
{
    struct precedence precedence = { roster, numbered };
    const int n_seats = list_free_seats(roster, seats);

    qsort_r(waiting, (size_t)n, sizeof *waiting, by_precedence, &precedence);
    for (int i = 0; i < n && i < n_seats; i++)
        sit(roster, waiting[i], seats[i]);
}

/* Ranks */

static int by_role(const void *a, const void *b, void *arg)
{
    struct roster *roster = arg;
    const struct roster_node *left = &roster->nodes[*(const int *)a],
                             *right = &roster->nodes[*(const int *)b];
    const int roles = strcmp(left->who.role, right->who.role);

    roster->n_looked++;
    return roles != 0 ? roles : (left->node_rank > right->node_rank) - (left->node_rank < right->node_rank);
}

/* Counts the ranks of each role. `nodes` (n) are the nodes that take part. */
static void rank_roles(struct roster *roster, int *nodes, int n)
{
    qsort_r(nodes, (size_t)n, sizeof *nodes, by_role, roster);
    for (int i = 0, end; i < n; i = end) {
        const char *role = roster->nodes[nodes[i]].who.role;
        int size = 0;

        for (end = i; end < n && strcmp(roster->nodes[nodes[end]].who.role, role) == 0; end++) {
            roster->nodes[nodes[end]].role_rank = size;
            size += roster->nodes[nodes[end]].who.n_workers;
        }
        for (int j = i; j < end; j++)
            roster->nodes[nodes[j]].role_world_size = size;
    }
    roster->n_looked += 3 * (uint64_t)n;
}

/*
 * Appends the node in this seat to `nodes` (which has n), if it takes part. Its ranks then follow those of
 * the nodes before it.
 */
static int list_next(const struct roster *roster, int seat, int *nodes, int n)
{
    const int number = roster->seats[seat].node;

    if (number >= 0 && !roster->nodes[number].leaving && !roster->nodes[number].held)
        nodes[n++] = number;
    return n;
}

/* Lists the nodes of the generation in the order of their ranks. Returns how many they are. */
static int list_by_rank(struct roster *roster, int *nodes)
{
    const int first = roster_is_job(roster) ? roster->nodes[0].seat : -1;
    int n = 0;

    if (first >= 0)
        n = list_next(roster, first, nodes, n);
    for (int seat = 0; seat < roster->max_nodes; seat++)
        if (seat != first)
            n = list_next(roster, seat, nodes, n);
    roster->n_looked += (uint64_t)roster->max_nodes;
    return n;
}

/* Numbers the nodes of the generation, and their ranks. `nodes` is room for max_nodes numbers. */
static void rank_them(struct roster *roster, int *nodes)
{
    const int n = list_by_rank(roster, nodes);

    roster->n_nodes = roster->n_staying_here = n;
    roster->world_size = 0;
    for (int i = 0; i < n; i++) {
        struct roster_node *node = &roster->nodes[nodes[i]];

        node->active = true;
        node->node_rank = i;
        node->first_rank = roster->world_size;
        roster->world_size += node->who.n_workers;
    }
    rank_roles(roster, nodes, n);
}

/* Gives the seats. */
static void seat_them(struct roster *roster)
{
    int *waiting = roster->sorting, *seats = roster->sorting + roster->capacity;
    int n = list_waiting(roster, waiting);
    const bool numbered = !roster->seated && are_numbered(roster, waiting, n);

    if (roster_is_job(roster) && roster_stays(&roster->nodes[0]) && roster->nodes[0].seat < 0) {
        seat_the_host(roster);
        n = list_waiting(roster, waiting);
    }
    n = seat_who_asked(roster, waiting, n);
    if (roster->continues)
        n = seat_who_sat(roster, waiting, n);
    roster->continues = false;
    if (roster->seated)
        n = seat_who_returned(roster, waiting, n, seats);
    seat_the_others(roster, waiting, n, seats, numbered);
    roster->seated = true;
}

void roster_seat(struct roster *roster)
{
    seat_them(roster);
    rank_them(roster, roster->sorting + roster->capacity);
}

int roster_preview(struct roster *roster, int *numbers)
{
    const struct roster before = *roster;
    const size_t seats_bytes = (size_t)roster->max_nodes * sizeof *roster->seats;
    struct roster_seat *seats = malloc(seats_bytes);
    int *seat_of = malloc((size_t)roster->capacity * sizeof *seat_of), n = -1;

    if (seats != NULL && seat_of != NULL) {
        memcpy(seats, roster->seats, seats_bytes);
        for (int i = 0; i < roster->capacity; i++)
            seat_of[i] = roster->nodes[i].seat;
        seat_them(roster);
        n = list_by_rank(roster, numbers);
        memcpy(roster->seats, seats, seats_bytes);
        for (int i = 0; i < roster->capacity; i++)
            roster->nodes[i].seat = seat_of[i];
        roster->seated = before.seated;
        roster->continues = before.continues;
    }
    free(seats);
    free(seat_of);
    return n;
}
