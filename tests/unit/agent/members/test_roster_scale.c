/*
 * What the roster costs, counted in nodes and seats that it looks at, and pairs of them that it compares. The
 * seats are those of the rules that its header gives, here in their plainest form, which compares each node
 * with each other one.
 */
#include "agent/members/roster.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct roster roster; /* of the test */

static struct proto_join describe(int min_nodes, int max_nodes, const char *host, int order)
{
    struct proto_join join = { .version = "v",
                               .role = "default",
                               .node_rank = -1,
                               .order = order,
                               .min_nodes = min_nodes,
                               .n_nodes = max_nodes,
                               .n_workers = 1 };

    snprintf(join.host, sizeof join.host, "%s", host);
    return join;
}

static int admit(const struct proto_join *join)
{
    struct proto_refused refused;

    return roster_judge(&roster, join, "10.0.0.1", &refused) ? roster_add(&roster, join, "10.0.0.1") : -1;
}

static void fini(void)
{
    roster_fini(&roster);
}

TestSuite(roster_scale, .fini = fini, .timeout = 600);

/* Cost */

enum { MANY = 8192, LOG_MANY = 13 };

static uint64_t n_looked_since(uint64_t before)
{
    return roster.n_looked - before;
}

/* A world of MANY nodes, all of one host or each of its own, with numbers of a scheduler or without. */
static void fill(bool one_host, bool numbered)
{
    struct proto_join join = describe(2, MANY, "n0", numbered ? 0 : -1);

    cr_assert(eq(int, roster_init(&roster, &join, "10.0.0.100", NULL), FSDP_OK));
    for (int i = 1; i < MANY; i++) {
        const int shuffled = (int)((unsigned)i * 2654435761u % MANY);

        snprintf(join.host, sizeof join.host, "n%d", one_host ? 0 : shuffled);
        snprintf(join.role, sizeof join.role, "role%d", shuffled % 100);
        join.order = numbered ? shuffled : -1;
        memcpy(join.identity, &i, sizeof i);
        cr_assert(gt(int, admit(&join), 0));
    }
}

Test(roster_scale, to_join_to_leave_and_to_be_counted_looks_at_no_other_node)
{
    const struct proto_join join = describe(2, MANY, "late", -1);
    uint64_t before;

    fill(false, false);
    cr_assert(eq(u64, roster.n_looked, 0), "%d joined", MANY);
    roster_seat(&roster);

    before = roster.n_looked;
    roster_remove(&roster, 17);
    roster_leave(&roster, 18);
    cr_assert(roster_enough(&roster) && !roster_full(&roster) && roster_can_spare(&roster, 19));
    cr_assert(gt(int, admit(&join), 0));
    cr_assert(roster_has_newcomers(&roster));
    cr_assert(eq(int, roster_n_present(&roster), MANY - 1));
    cr_assert(eq(u64, n_looked_since(before), 0));
}

Test(roster_scale, a_generation_takes_n_log_n_steps_however_the_nodes_are_named)
{
    const uint64_t most = UINT64_C(40) * MANY * LOG_MANY;

    for (int how = 0; how < 4; how++) {
        uint64_t before;

        fini();
        fill((how & 1) != 0, (how & 2) != 0);
        before = roster.n_looked;
        roster_seat(&roster);
        cr_assert(eq(int, roster.n_nodes, MANY));
        cr_expect(le(u64, n_looked_since(before), most), "the first forming, %d", how);

        /* half of them go and come back */
        for (int i = 2; i < MANY; i += 2)
            roster_remove(&roster, i);
        roster_clear(&roster);
        for (int i = 2; i < MANY; i += 2) {
            const struct proto_join join = roster.nodes[i].who;

            cr_assert(gt(int, admit(&join), 0));
        }
        before = roster.n_looked;
        roster_seat(&roster);
        cr_assert(eq(int, roster.n_nodes, MANY));
        cr_expect(le(u64, n_looked_since(before), most), "forming again, %d", how);
    }
}

/* The same seats as by the plainest rules */

struct guest {
    const struct roster_node *node;
    int seat;
};

static bool comes_before(const struct guest *a, const struct guest *b, bool numbered)
{
    const bool a_hosts = a->node == roster.nodes, b_hosts = b->node == roster.nodes;
    int difference;

    if (roster.seated)
        return a->node->arrival < b->node->arrival;
    if (!numbered && a_hosts != b_hosts)
        return a_hosts;
    if (numbered)
        return a->node->who.order < b->node->who.order;
    difference = strverscmp(a->node->who.host, b->node->who.host);
    return difference != 0 ? difference < 0 : a->node->arrival < b->node->arrival;
}

static bool all_numbered(const struct guest *guests, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (guests[i].seat < 0 && guests[j].seat < 0 &&
                (guests[i].node->who.order < 0 ||
                 (i != j && guests[i].node->who.order == guests[j].node->who.order)))
                return false;
    return true;
}

/* Seats the node of a job's host, at a seat that another node asked for only if there is no other. */
static void seat_host_plainly(struct guest *host, bool *taken)
{
    for (int others = 0; others < 2; others++)
        for (int seat = 0; seat < roster.max_nodes && host->seat < 0; seat++) {
            const struct roster_node *holder = roster_holder(&roster, seat);

            if (!taken[seat] && (others || holder == NULL || holder == host->node))
                taken[host->seat = seat] = true;
        }
}

/* Writes the seat of every node that stays into `seats`, indexed by its number; -1: it has none. */
static void seat_plainly(int *seats)
{
    struct guest guests[128];
    bool taken[128] = { false }, numbered;
    int n = 0;

    for (int i = 0; i < roster.capacity; i++) {
        seats[i] = -1;
        if (roster.nodes[i].present && roster.nodes[i].seat >= 0)
            taken[roster.nodes[i].seat] = true;
        if (roster_stays(&roster.nodes[i]))
            guests[n++] = (struct guest){ &roster.nodes[i], roster.nodes[i].seat };
    }
    numbered = all_numbered(guests, n);
    if (roster_is_job(&roster))
        seat_host_plainly(&guests[0], taken);
    for (int i = 0; i < n; i++)
        if (guests[i].seat < 0 && guests[i].node->who.node_rank >= 0 && !taken[guests[i].node->who.node_rank])
            taken[guests[i].seat = guests[i].node->who.node_rank] = true;
    for (unsigned arrival = 0; roster.seated && arrival < roster.n_arrived; arrival++)
        for (int i = 0; i < n; i++)
            for (int seat = 0;
                 guests[i].node->arrival == arrival && guests[i].seat < 0 && seat < roster.max_nodes; seat++)
                if (!taken[seat] && roster.seats[seat].order == guests[i].node->who.order &&
                    strcmp(roster.seats[seat].host, guests[i].node->who.host) == 0)
                    taken[guests[i].seat = seat] = true;
    for (int seat = 0; seat < roster.max_nodes; seat++) {
        struct guest *first = NULL;

        for (int i = 0; i < n; i++)
            if (!taken[seat] && guests[i].seat < 0 &&
                (first == NULL || comes_before(&guests[i], first, numbered)))
                first = &guests[i];
        if (first != NULL)
            taken[first->seat = seat] = true;
    }
    for (int i = 0; i < n; i++)
        seats[guests[i].node - roster.nodes] = guests[i].seat;
}

static void check_roles(void)
{
    for (int i = 0; i < roster.capacity; i++) {
        const struct roster_node *node = &roster.nodes[i];
        int rank = 0, size = 0;

        for (int j = 0; node->active && j < roster.capacity; j++) {
            const struct roster_node *other = &roster.nodes[j];

            if (!other->active || strcmp(other->who.role, node->who.role) != 0)
                continue;
            size += other->who.n_workers;
            rank += other->node_rank < node->node_rank ? other->who.n_workers : 0;
        }
        if (node->active)
            cr_assert(node->role_rank == rank && node->role_world_size == size, "node %d", i);
    }
}

static void check_counts(void)
{
    int n_staying = 0, n_here = 0, n_free = 0;

    for (int i = 0; i < roster.capacity; i++) {
        n_staying += roster_stays(&roster.nodes[i]);
        n_here += roster_stays(&roster.nodes[i]) && roster.nodes[i].active;
        n_free += !roster.nodes[i].present && !roster.nodes[i].active;
    }
    cr_assert(roster.n_staying == n_staying && roster.n_staying_here == n_here && roster.n_free == n_free);
}

static unsigned seed;

static int draw(int n)
{
    seed = seed * 1103515245u + 12345u;
    return (int)((seed >> 8) % (unsigned)n);
}

/* A node of one of a few hosts comes, as a scheduler or its user may have started it. */
static void someone_comes(int max_nodes)
{
    char host[8];
    struct proto_join join;

    snprintf(host, sizeof host, "h%d", draw(max_nodes));
    join = describe(1, max_nodes, host, draw(3) == 0 ? -1 : draw(max_nodes));
    join.node_rank = draw(5) == 0 ? draw(max_nodes) : -1;
    join.what = roster.nodes[0].who.what;
    join.n_workers = join.what != 0 ? 1 : 1 + draw(3);
    snprintf(join.role, sizeof join.role, "role%d", draw(3));
    admit(&join);
}

static void form_and_check(void)
{
    int seats[128];

    for (int i = 1; i < roster.capacity; i++)
        if (roster.nodes[i].leaving)
            roster_remove(&roster, i);
    roster_clear(&roster);
    seat_plainly(seats);
    roster_seat(&roster);
    for (int i = 0; i < roster.capacity; i++)
        if (roster_stays(&roster.nodes[i]))
            cr_assert(roster.nodes[i].seat == seats[i], "seed %u: node %d has seat %d, not %d", seed, i,
                      roster.nodes[i].seat, seats[i]);
    check_roles();
    check_counts();
}

Test(roster_scale, the_seats_roles_and_counts_are_those_of_the_plain_rules)
{
    for (unsigned history = 1; history <= 3000; history++) {
        const int max_nodes = 1 + (int)(history % 12);
        struct proto_join self = describe(1, max_nodes, "h0", history % 3 == 0 ? 0 : -1);

        self.what = history % 2;
        seed = history;
        fini();
        cr_assert(eq(int, roster_init(&roster, &self, "10.0.0.1", NULL), FSDP_OK));
        for (int step = 0; step < 40; step++) {
            const int what = draw(8), node = 1 + draw(max_nodes + 4);

            if (what < 5)
                someone_comes(max_nodes);
            else if (what == 5 && node < roster.capacity)
                roster_remove(&roster, node);
            else if (what == 6 && node < roster.capacity && roster.nodes[node].present)
                roster_leave(&roster, node);
            else if (what == 7)
                form_and_check();
            check_counts();
        }
    }
}
