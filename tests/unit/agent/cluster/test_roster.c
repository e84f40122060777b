#include "agent/cluster/roster.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include <fsdp/link.h>

/* A roster with its host's node, which has `n_workers`, in a world of min:max nodes. */
static void set_up(struct roster *roster, int min_nodes, int max_nodes)
{
    const struct proto_join self = { .version = "v",
                                     .host = "h0",
                                     .role = "default",
                                     .node_rank = -1,
                                     .order = -1,
                                     .min_nodes = min_nodes,
                                     .n_nodes = max_nodes,
                                     .n_workers = 1 };

    cr_assert(eq(int, roster_init(roster, &self, "10.0.0.100", NULL), FSDP_OK));
}

static struct proto_join another(const struct roster *roster, const char *host)
{
    struct proto_join join = roster->nodes[0].who;

    snprintf(join.host, sizeof join.host, "%s", host);
    join.node_rank = join.order = -1;
    return join;
}

static int add(struct roster *roster, const char *host)
{
    struct proto_join join = another(roster, host);
    struct proto_refused refused;

    cr_assert(roster_judge(roster, &join, "10.0.0.1", &refused), "%s: %s", host, refused.words);
    return roster_add(roster, &join, "10.0.0.1");
}

static int add_join(struct roster *roster, const struct proto_join *join)
{
    struct proto_refused refused;

    cr_assert(roster_judge(roster, join, "10.0.0.1", &refused), "%s", refused.words);
    return roster_add(roster, join, "10.0.0.1");
}

static void reseat(struct roster *roster)
{
    roster_clear(roster);
    roster_seat(roster);
}

Test(roster, the_host_is_first_and_the_others_follow_by_name_not_by_arrival)
{
    struct roster roster;
    int n10, n9, n2;

    set_up(&roster, 4, 4);
    n10 = add(&roster, "n10");
    n2 = add(&roster, "n2");
    n9 = add(&roster, "n9");
    reseat(&roster);

    cr_assert(eq(int, roster.nodes[0].node_rank, 0));
    cr_assert(eq(int, roster.nodes[n2].node_rank, 1));
    cr_assert(eq(int, roster.nodes[n9].node_rank, 2));
    cr_assert(eq(int, roster.nodes[n10].node_rank, 3));
    roster_fini(&roster);
}

Test(roster, numbers_of_the_scheduler_order_a_program_and_leave_the_host_first_in_a_job)
{
    for (int job = 0; job < 2; job++) {
        struct roster roster;
        struct proto_join join;
        int one, two;

        set_up(&roster, 3, 3);
        roster.nodes[0].who.order = 1;
        roster.nodes[0].who.what = (uint64_t)job;
        join = another(&roster, "a");
        join.order = 2;
        two = add_join(&roster, &join);
        join.order = 0;
        one = add_join(&roster, &join);
        reseat(&roster);

        cr_assert(eq(int, roster.nodes[0].node_rank, job ? 0 : 1));
        cr_assert(eq(int, roster.nodes[one].node_rank, job ? 1 : 0));
        cr_assert(eq(int, roster.nodes[two].node_rank, 2));
        roster_fini(&roster);
    }
}

Test(roster, numbers_that_two_nodes_share_say_nothing)
{
    struct roster roster;
    struct proto_join join;
    int z, a;

    set_up(&roster, 3, 3);
    roster.nodes[0].who.order = 0;
    join = another(&roster, "z");
    join.order = 0;
    z = add_join(&roster, &join);
    join = another(&roster, "a");
    join.order = 5;
    a = add_join(&roster, &join);
    reseat(&roster);

    cr_assert(roster.nodes[0].node_rank == 0 && roster.nodes[a].node_rank == 1 &&
              roster.nodes[z].node_rank == 2);
    roster_fini(&roster);
}

Test(roster, a_rank_that_is_asked_for_is_given_and_the_others_fill_in)
{
    struct roster roster;
    struct proto_join join;
    int first, any;

    set_up(&roster, 3, 3);
    roster.nodes[0].who.node_rank = 2;
    any = add(&roster, "a");
    join = another(&roster, "z");
    join.node_rank = 0;
    first = add_join(&roster, &join);
    reseat(&roster);

    cr_assert(roster.nodes[first].node_rank == 0 && roster.nodes[any].node_rank == 1 &&
              roster.nodes[0].node_rank == 2);
    roster_fini(&roster);
}

static void check_refused(const struct roster *roster, const struct proto_join *join, int status,
                          const char *words, const char *who)
{
    struct proto_refused refused = { 0 };

    cr_assert(not(roster_judge(roster, join, "10.0.0.9", &refused)), "%s", words);
    cr_assert(eq(int, refused.status, status), "%s", words);
    cr_assert_not_null(strstr(refused.words, words), "%s", refused.words);
    cr_assert_not_null(strstr(refused.words, "x9 (10.0.0.9)"), "%s", refused.words);
    cr_assert_not_null(strstr(refused.words, who), "%s", refused.words);
}

Test(roster, contradictions_name_both_nodes)
{
    struct roster roster;
    struct proto_join good, join;

    set_up(&roster, 2, 3);
    roster.nodes[0].who.what = 7;
    roster.nodes[0].who.node_rank = 0;
    good = another(&roster, "h1");
    good.node_rank = 1;
    add_join(&roster, &good);
    snprintf(good.host, sizeof good.host, "x9");
    good.node_rank = -1;

    join = good;
    join.node_rank = 1;
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "node rank 1 is taken by h1 (10.0.0.1)",
                  "asks for it too");
    join.node_rank = 0;
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "node rank 0 is taken", "h0 (10.0.0.100)");
    join.node_rank = 3;
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "no node rank 3", "");
    join.node_rank = -2;
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "no node rank -2", "");
    join = good;
    join.n_nodes = 4;
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "started for 2:4 nodes",
                  "h0 (10.0.0.100), which hosts, for 2:3");
    join = good;
    join.min_nodes = 1;
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "started for 1:3 nodes", "h0 (10.0.0.100)");
    join = good;
    join.what = 8;
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "another job file", "h0 (10.0.0.100)");
    join = good;
    join.n_workers = 2;
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "has 2 workers", "h0 (10.0.0.100)");
    join = good;
    snprintf(join.version, sizeof join.version, "w");
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "runs fsdprun w", "h0 (10.0.0.100)");
    cr_assert(eq(int, roster_n_present(&roster), 2));
    roster_fini(&roster);
}

Test(roster, more_workers_than_an_int_counts_are_refused)
{
    struct roster roster;
    struct proto_join join;

    set_up(&roster, 2, 3);
    join = another(&roster, "x9");
    join.n_workers = ROSTER_MAX_WORKERS + 1;
    check_refused(&roster, &join, FSDP_EXIT_CONFIG, "with 4097 workers", "");
    join.n_workers = ROSTER_MAX_WORKERS;
    add_join(&roster, &join);
    cr_assert(eq(int, roster_n_present(&roster), 2));
    roster_fini(&roster);
}

/* PyTorch's: test_correct_rank_assignment_heterogeneous, seven agents in three roles. */
Test(roster, ranks_of_seven_nodes_in_three_roles)
{
    static const struct {
        const char *role;
        int n_workers;
    } kinds[7] = { { "worker", 2 }, { "parameter", 1 }, { "worker", 3 }, { "reader", 4 },
                   { "reader", 1 }, { "parameter", 2 }, { "worker", 1 } };
    struct roster roster;
    int first = 0;

    set_up(&roster, 7, 7);
    snprintf(roster.nodes[0].who.role, PROTO_TEXT_BYTES, "worker");
    roster.nodes[0].who.n_workers = 2;
    for (int i = 1; i < 7; i++) {
        struct proto_join join = another(&roster, "n");

        snprintf(join.host, sizeof join.host, "n%d", i);
        snprintf(join.role, sizeof join.role, "%s", kinds[i].role);
        join.n_workers = kinds[i].n_workers;
        cr_assert(eq(int, add_join(&roster, &join), i));
    }
    reseat(&roster);

    cr_assert(eq(int, roster.world_size, 14));
    for (int i = 0; i < 7; i++) {
        int role_rank = 0, role_size = 0;

        for (int j = 0; j < 7; j++)
            if (strcmp(kinds[i].role, kinds[j].role) == 0) {
                role_size += kinds[j].n_workers;
                role_rank += j < i ? kinds[j].n_workers : 0;
            }
        cr_assert(eq(int, roster.nodes[i].node_rank, i));
        cr_assert(eq(int, roster.nodes[i].first_rank, first), "node %d", i);
        cr_assert(eq(int, roster.nodes[i].role_rank, role_rank), "node %d", i);
        cr_assert(eq(int, roster.nodes[i].role_world_size, role_size), "node %d", i);
        first += kinds[i].n_workers;
    }
    roster_fini(&roster);
}

Test(roster, who_remains_keeps_its_order_and_who_returns_its_seat)
{
    struct roster roster;
    int a, b, c, back;

    set_up(&roster, 2, 4);
    a = add(&roster, "a");
    b = add(&roster, "b");
    c = add(&roster, "c");
    reseat(&roster);
    roster_remove(&roster, a);
    roster_remove(&roster, b);
    reseat(&roster);
    cr_assert(roster.n_nodes == 2 && roster.nodes[0].node_rank == 0 && roster.nodes[c].node_rank == 1);
    cr_assert(eq(int, roster.nodes[c].seat, 3));

    back = add(&roster, "b"); /* before a, and still behind it */
    a = add(&roster, "a");
    cr_assert(roster_has_newcomers(&roster));
    reseat(&roster);

    cr_assert(eq(int, roster.nodes[a].node_rank, 1));
    cr_assert(eq(int, roster.nodes[back].node_rank, 2));
    cr_assert(eq(int, roster.nodes[c].node_rank, 3));
    cr_assert(not(roster_has_newcomers(&roster)));
    roster_fini(&roster);
}

Test(roster, a_spare_waits_and_takes_the_place_of_one_that_is_lost)
{
    struct roster roster;
    int a, spare;

    set_up(&roster, 2, 2);
    a = add(&roster, "a");
    reseat(&roster);
    spare = add(&roster, "b");
    cr_assert(not(roster_has_newcomers(&roster)));
    cr_assert(not(roster.nodes[spare].active));
    reseat(&roster);
    cr_assert(not(roster.nodes[spare].active), "it does not push out who is there");
    roster_remove(&roster, a);
    cr_assert(roster_has_newcomers(&roster));
    reseat(&roster);

    cr_assert(roster.nodes[spare].active && roster.nodes[spare].node_rank == 1);
    cr_assert(eq(int, roster.n_nodes, 2));
    roster_fini(&roster);
}

Test(roster, a_node_that_leaves_takes_part_until_the_generation_is_over)
{
    struct roster roster;
    int a, b;

    set_up(&roster, 2, 3);
    a = add(&roster, "a");
    b = add(&roster, "b");
    reseat(&roster);
    cr_assert(roster_can_spare(&roster, a));
    roster.nodes[a].leaving = true;
    cr_assert(roster.nodes[a].active);
    cr_assert(eq(int, roster_n_present(&roster), 2));
    cr_assert(not(roster_can_spare(&roster, b)));
    cr_assert(roster_can_spare(&roster, a), "it is not counted any more");
    reseat(&roster);

    cr_assert(not(roster.nodes[a].active));
    cr_assert(roster.nodes[0].active && roster.nodes[b].active && roster.n_nodes == 2);
    roster_fini(&roster);
}

Test(roster, a_number_is_not_given_again_while_its_generation_runs)
{
    struct roster roster;
    int a, b;

    set_up(&roster, 1, 2);
    a = add(&roster, "a");
    reseat(&roster);
    roster_remove(&roster, a);
    b = add(&roster, "b");
    cr_assert(ne(int, a, b));
    reseat(&roster);
    cr_assert(eq(int, add(&roster, "c"), a));
    roster_fini(&roster);
}

Test(roster, spares_are_bounded)
{
    struct roster roster;
    struct proto_refused refused;
    struct proto_join join;
    char name[16];

    set_up(&roster, 2, 2);
    for (int i = 1; i < 2 + ROSTER_SPARES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        add(&roster, name);
    }
    join = another(&roster, "x9");
    cr_assert(not(roster_judge(&roster, &join, "10.0.0.9", &refused)));
    cr_assert(eq(int, refused.status, FSDP_EXIT_PEER));
    roster_fini(&roster);
}

/*
 * Every history of a small world, to a depth: nodes come (three names), vanish, say goodbye, and the world is
 * formed anew. After every forming the ranks are 0 ... W - 1 without a gap, nobody who stayed changed places with
 * another who stayed, at most max_nodes are in, and nobody waits while there is room.
 */
enum { NAMES = 3, DEPTH = 6 };

static long n_walked;

static void check_formed(const struct roster *roster, const struct roster *before)
{
    bool seen[8] = { false };
    int n_active = 0, n_waiting = 0;

    for (int i = 0; i < roster->capacity; i++) {
        const struct roster_node *node = &roster->nodes[i];

        if (!node->active) {
            n_waiting += node->present && !node->leaving;
            continue;
        }
        n_active++;
        cr_assert(node->present && !node->leaving);
        cr_assert(node->node_rank >= 0 && node->node_rank < roster->n_nodes && !seen[node->node_rank]);
        seen[node->node_rank] = true;
        cr_assert(eq(int, node->first_rank, node->node_rank), "one worker each");
        for (int j = 0; j < roster->capacity; j++)
            if (before->nodes[i].active && before->nodes[j].active && roster->nodes[j].active &&
                roster->nodes[j].arrival == before->nodes[j].arrival &&
                node->arrival == before->nodes[i].arrival)
                cr_assert(eq(int, before->nodes[i].node_rank < before->nodes[j].node_rank,
                             node->node_rank < roster->nodes[j].node_rank));
    }
    cr_assert(n_active == roster->n_nodes && n_active == roster->world_size && n_active <= roster->max_nodes);
    cr_assert(n_waiting == 0 || n_active == roster->max_nodes);
    cr_assert(not(roster_has_newcomers(roster)));
}

static struct roster copy_of(const struct roster *roster)
{
    struct roster copy = *roster;

    copy.nodes = malloc((size_t)roster->capacity * sizeof *copy.nodes);
    copy.seats = malloc((size_t)roster->max_nodes * sizeof *copy.seats);
    memcpy(copy.nodes, roster->nodes, (size_t)roster->capacity * sizeof *copy.nodes);
    memcpy(copy.seats, roster->seats, (size_t)roster->max_nodes * sizeof *copy.seats);
    return copy;
}

static void walk(const struct roster *roster, int depth)
{
    static const char *const names[NAMES] = { "a", "b", "c" };

    n_walked++;
    for (int what = 0; depth > 0 && what < NAMES + 2 * 4 + 1; what++) {
        struct roster next = copy_of(roster);
        bool done = false;

        if (what < NAMES) {
            done = roster_n_present(&next) < 5;
            if (done)
                add(&next, names[what]);
        } else if (what < NAMES + 8) {
            const int node = 1 + (what - NAMES) / 2;

            done = next.nodes[node].present;
            if (done && (what - NAMES) % 2 == 0)
                roster_remove(&next, node);
            else if (done && !next.nodes[node].leaving)
                next.nodes[node].leaving = true;
            else
                done = false;
        } else if (roster_enough(&next)) {
            struct roster before = copy_of(&next);

            done = true;
            for (int i = 0; i < next.capacity; i++)
                if (next.nodes[i].leaving)
                    roster_remove(&next, i);
            reseat(&next);
            check_formed(&next, &before);
            roster_fini(&before);
        }
        if (done)
            walk(&next, depth - 1);
        roster_fini(&next);
    }
}

Test(roster, every_short_history_leaves_whole_ranks, .timeout = 1200)
{
    for (int max = 2; max <= 3; max++) {
        struct roster roster;

        set_up(&roster, 1, max);
        roster.capacity = 6; /* enough, and fast to copy */
        walk(&roster, DEPTH);
        roster_fini(&roster);
    }
    cr_assert(gt(long, n_walked, 10000), "%ld", n_walked);
}
