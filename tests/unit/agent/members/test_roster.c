#include "agent/members/roster.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include <fsdp/link.h>

static struct roster roster; /* of the test */

/* The host's node alone, in a world of min:max nodes. It may ask for a node rank; -1: it does not. */
static void set_up_ranked(int min_nodes, int max_nodes, int node_rank)
{
    const struct proto_join self = { .version = "v",
                                     .host = "h0",
                                     .role = "default",
                                     .node_rank = node_rank,
                                     .order = -1,
                                     .last_node_rank = -1,
                                     .min_nodes = min_nodes,
                                     .n_nodes = max_nodes,
                                     .n_workers = 1 };

    cr_assert(eq(int, roster_init(&roster, &self, "10.0.0.100", NULL), FSDP_OK));
}

static void set_up(int min_nodes, int max_nodes)
{
    set_up_ranked(min_nodes, max_nodes, -1);
}

static void tear_down(void)
{
    roster_fini(&roster);
}

TestSuite(roster, .fini = tear_down, .timeout = 1200);

static struct proto_join another(const char *host)
{
    struct proto_join join = roster.nodes[0].who;

    snprintf(join.host, sizeof join.host, "%s", host);
    join.node_rank = join.order = join.last_node_rank = -1;
    return join;
}

static int add_join_to(struct roster *to, const struct proto_join *join)
{
    struct proto_refused refused;

    cr_assert(roster_judge(to, join, "10.0.0.1", &refused), "%s: %s", join->host, refused.words);
    return roster_add(to, join, "10.0.0.1");
}

static int add_join(const struct proto_join *join)
{
    return add_join_to(&roster, join);
}

static int add(const char *host)
{
    const struct proto_join join = another(host);

    return add_join(&join);
}

/* One to which the scheduler gave the number `order`, or that asks for `node_rank`; -1: not. */
static int add_numbered(const char *host, int order, int node_rank)
{
    struct proto_join join = another(host);

    join.order = order;
    join.node_rank = node_rank;
    return add_join(&join);
}

/* The preview of the generation shows the same nodes, and changes nothing. */
static void reseat(struct roster *of)
{
    int *numbers = malloc((size_t)of->max_nodes * sizeof *numbers), n, again;

    roster_clear(of);
    n = roster_preview(of, numbers);
    again = roster_preview(of, numbers);
    roster_seat(of);
    cr_assert(n == of->n_nodes && again == n, "%d and %d of %d", n, again, of->n_nodes);
    for (int i = 0; i < n; i++)
        cr_assert(of->nodes[numbers[i]].active && of->nodes[numbers[i]].node_rank == i);
    free(numbers);
}

/* These nodes, and only these, have the ranks 0, 1, ... */
#define RANKED(...) check_ranks((int[]){ __VA_ARGS__ }, sizeof((int[]){ __VA_ARGS__ }) / sizeof(int))

static void check_ranks(const int *nodes, size_t n)
{
    cr_assert(eq(int, roster.n_nodes, (int)n));
    for (size_t i = 0; i < n; i++)
        cr_assert(roster.nodes[nodes[i]].active && roster.nodes[nodes[i]].node_rank == (int)i,
                  "node %d has rank %d, not %zu", nodes[i], roster.nodes[nodes[i]].node_rank, i);
}

Test(roster, the_host_is_first_and_the_others_follow_by_name_not_by_arrival)
{
    int n10, n9, n2;

    set_up(4, 4);
    n10 = add("n10");
    n2 = add("n2");
    n9 = add("n9");
    reseat(&roster);
    RANKED(0, n2, n9, n10);
}

/* Another coordinator was lost, which had given them these places: 0 was the lost one's. */
Test(roster, nodes_of_an_earlier_coordinator_keep_their_order)
{
    static const unsigned char run[PROTO_IDENTITY_BYTES] = { 7 };
    struct proto_join join;
    int third, second, spare, back;

    set_up(3, 4);
    roster.nodes[0].who.last_node_rank = 2;
    roster_continue(&roster, run, true);
    join = another("a");
    join.last_node_rank = -1;
    spare = add_join(&join);
    join = another("b");
    join.last_node_rank = 3;
    third = add_join(&join);
    join = another("c");
    join.last_node_rank = 1;
    second = add_join(&join);
    reseat(&roster);
    RANKED(spare, second, 0, third);

    roster_remove(&roster, second);
    reseat(&roster);
    RANKED(spare, 0, third);
    join.last_node_rank = 0;
    back = add_join(&join);
    reseat(&roster);
    RANKED(spare, back, 0, third);
}

Test(roster, rank_0_of_a_job_is_on_the_hosts_node_whatever_its_seat)
{
    static const unsigned char run[PROTO_IDENTITY_BYTES] = { 7 };
    struct proto_join join;
    int first;

    for (int job = 0; job < 2; job++) {
        tear_down();
        set_up(2, 3);
        roster.nodes[0].who.what = (uint64_t)job;
        roster.nodes[0].who.last_node_rank = 2;
        roster_continue(&roster, run, true);
        join = another("a");
        join.last_node_rank = 1;
        first = add_join(&join);
        reseat(&roster);
        RANKED(job ? 0 : first, job ? first : 0);
        cr_assert(eq(int, roster.nodes[job ? first : 0].first_rank, 1));
    }
}

/* It was a spare of the coordinator that was lost, and the nodes of all places come, or ask for them. */
Test(roster, the_hosts_node_of_a_job_has_a_seat_before_all_others)
{
    static const unsigned char run[PROTO_IDENTITY_BYTES] = { 7 };

    for (int asked = 0; asked < 2; asked++) {
        int nodes[3];

        tear_down();
        set_up(2, 3);
        roster.nodes[0].who.what = 1;
        roster_continue(&roster, run, true);
        for (int i = 0; i < 3; i++) {
            struct proto_join join = another("a");

            join.last_node_rank = i;
            join.node_rank = asked ? i : -1;
            nodes[i] = add_join(&join);
        }
        reseat(&roster);
        cr_assert(eq(int, nodes[2], 3));
        if (asked)
            RANKED(0, nodes[1], nodes[2]);
        else
            RANKED(0, nodes[0], nodes[1]);
    }
}

Test(roster, numbers_of_the_scheduler_order_a_program_and_leave_the_host_first_in_a_job)
{
    for (int job = 0; job < 2; job++) {
        int one, two;

        tear_down();
        set_up(3, 3);
        roster.nodes[0].who.order = 1;
        roster.nodes[0].who.what = (uint64_t)job;
        two = add_numbered("a", 2, -1);
        one = add_numbered("a", 0, -1);
        reseat(&roster);
        RANKED(job ? 0 : one, job ? one : 0, two);
    }
}

Test(roster, numbers_that_two_nodes_share_say_nothing)
{
    int z, a;

    set_up(3, 3);
    roster.nodes[0].who.order = 0;
    z = add_numbered("z", 0, -1);
    a = add_numbered("a", 5, -1);
    reseat(&roster);
    RANKED(0, a, z);
}

Test(roster, a_rank_that_is_asked_for_is_given_and_the_others_fill_in)
{
    int first, any;

    set_up_ranked(3, 3, 2);
    any = add("a");
    first = add_numbered("z", -1, 0);
    reseat(&roster);
    RANKED(first, any, 0);
}

static void check_refused(const struct proto_join *join, const char *words, const char *who)
{
    struct proto_refused refused = { 0 };

    cr_assert(not(roster_judge(&roster, join, "10.0.0.9", &refused)), "%s", words);
    cr_assert(eq(int, refused.status, FSDP_EXIT_CONFIG), "%s", words);
    cr_assert(strstr(refused.words, words) != NULL && strstr(refused.words, "x9 (10.0.0.9)") != NULL &&
                  strstr(refused.words, who) != NULL,
              "%s", refused.words);
}

Test(roster, contradictions_name_both_nodes)
{
    static const char host[] = "h0 (10.0.0.100)";
    static const struct {
        int node_rank, min_nodes, n_nodes, n_workers;
        uint64_t what;
        const char *version, *words, *who;
    } cases[] = {
        { 1, 2, 3, 1, 7, "v", "node rank 1 is taken by h1 (10.0.0.1)", "asks for it too" },
        { 0, 2, 3, 1, 7, "v", "node rank 0 is taken", host },
        { 3, 2, 3, 1, 7, "v", "no node rank 3", "" },
        { -2, 2, 3, 1, 7, "v", "no node rank -2", "" },
        { -1, 2, 4, 1, 7, "v", "started for 2:4 nodes", "h0 (10.0.0.100), which hosts, for 2:3" },
        { -1, 1, 3, 1, 7, "v", "started for 1:3 nodes", host },
        { -1, 2, 3, 1, 8, "v", "another job file", host },
        { -1, 2, 3, 2, 7, "v", "has 2 workers", host },
        { -1, 2, 3, 1, 7, "w", "runs fsdprun w", host },
    };

    set_up_ranked(2, 3, 0);
    roster.nodes[0].who.what = 7;
    add_numbered("h1", -1, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct proto_join join = another("x9");

        join.node_rank = cases[i].node_rank;
        join.min_nodes = cases[i].min_nodes;
        join.n_nodes = cases[i].n_nodes;
        join.n_workers = cases[i].n_workers;
        join.what = cases[i].what;
        snprintf(join.version, sizeof join.version, "%s", cases[i].version);
        check_refused(&join, cases[i].words, cases[i].who);
    }
    cr_assert(eq(int, roster_n_present(&roster), 2));
}

Test(roster, an_agent_is_found_by_its_identity_as_long_as_it_is_there)
{
    struct proto_join join;
    int node;

    set_up(1, 3);
    join = another("h1");
    cr_assert(eq(int, roster_find(&roster, join.identity), -1), "the host's own node is no member");
    join.identity[15] = 1;
    cr_assert(eq(int, roster_find(&roster, join.identity), -1));
    node = add_join(&join);
    cr_assert(eq(int, roster_find(&roster, join.identity), node));
    roster_remove(&roster, node);
    roster_remove(&roster, node);
    cr_assert(eq(int, roster_find(&roster, join.identity), -1));
    cr_assert(eq(int, add_join(&join), node), "the number is free again");
    cr_assert(eq(int, roster_find(&roster, join.identity), node));
}

Test(roster, a_node_comes_back_to_the_run_that_lost_it_and_to_no_other)
{
    struct proto_refused refused = { 0 };
    struct proto_join join;

    set_up(1, 3);
    memset(roster.run, 7, PROTO_IDENTITY_BYTES);
    join = another("x9");
    memset(join.lost_by, 7, PROTO_IDENTITY_BYTES);
    cr_assert(roster_judge(&roster, &join, "10.0.0.9", &refused));
    join.lost_by[15] = 8;
    cr_assert(not(roster_judge(&roster, &join, "10.0.0.9", &refused)));
    cr_assert(eq(int, refused.status, FSDP_EXIT_LINK));
    cr_assert_not_null(strstr(refused.words, "x9 (10.0.0.9) was lost by an earlier run"), "%s",
                       refused.words);
}

Test(roster, more_workers_than_an_int_counts_are_refused)
{
    struct proto_join join;

    set_up(2, 3);
    join = another("x9");
    join.n_workers = ROSTER_MAX_WORKERS + 1;
    check_refused(&join, "with 4097 workers", "");
    join.n_workers = ROSTER_MAX_WORKERS;
    add_join(&join);
    cr_assert(eq(int, roster_n_present(&roster), 2));
}

Test(roster, who_remains_keeps_its_order_and_who_returns_its_seat)
{
    int a, b, c, back;

    set_up(2, 4);
    a = add("a");
    b = add("b");
    c = add("c");
    reseat(&roster);
    roster_remove(&roster, a);
    roster_remove(&roster, b);
    reseat(&roster);
    RANKED(0, c);
    cr_assert(eq(int, roster.nodes[c].seat, 3));

    back = add("b"); /* before a, and still after it */
    a = add("a");
    cr_assert(roster_has_newcomers(&roster));
    reseat(&roster);
    RANKED(0, a, back, c);
    cr_assert(not(roster_has_newcomers(&roster)));
}

Test(roster, a_node_that_leaves_takes_part_until_the_generation_is_over)
{
    int a, b;

    set_up(2, 3);
    a = add("a");
    b = add("b");
    reseat(&roster);
    cr_assert(roster_can_spare(&roster, a));
    roster_leave(&roster, a);
    cr_assert(roster.nodes[a].active);
    cr_assert(eq(int, roster_n_present(&roster), 2));
    cr_assert(not(roster_can_spare(&roster, b)));
    cr_assert(roster_can_spare(&roster, a), "it is not counted any more");
    reseat(&roster);
    cr_assert(not(roster.nodes[a].active));
    RANKED(0, b);
}

Test(roster, a_number_is_not_given_again_while_its_generation_runs)
{
    int a, b;

    set_up(1, 2);
    a = add("a");
    reseat(&roster);
    roster_remove(&roster, a);
    b = add("b");
    cr_assert(ne(int, a, b));
    reseat(&roster);
    cr_assert(eq(int, add("c"), a));
}

Test(roster, spares_are_bounded)
{
    struct proto_refused refused;
    struct proto_join join;
    char name[16];

    set_up(2, 2);
    for (int i = 1; i < 2 + ROSTER_SPARES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        add(name);
    }
    join = another("x9");
    cr_assert(not(roster_judge(&roster, &join, "10.0.0.9", &refused)));
    cr_assert(eq(int, refused.status, FSDP_EXIT_PEER));
}

/*
 * Walks every history of a small world, up to DEPTH steps: nodes of three names come, vanish and say goodbye,
 * and the world forms again. After each time that it formed:
 *   - the ranks are 0 ... W - 1 without a gap,
 *   - nodes that stayed have kept their order,
 *   - at most max_nodes take part,
 *   - and no node waits while there is room.
 */
enum { NAMES = 3, DEPTH = 6 };

static long n_walked;

static void check_formed(const struct roster *of, const struct roster *before)
{
    bool seen[8] = { false };
    int n_active = 0, n_waiting = 0;

    for (int i = 0; i < of->capacity; i++) {
        const struct roster_node *node = &of->nodes[i];

        if (!node->active) {
            n_waiting += node->present && !node->leaving;
            continue;
        }
        n_active++;
        cr_assert(node->present && !node->leaving);
        cr_assert(node->node_rank >= 0 && node->node_rank < of->n_nodes && !seen[node->node_rank]);
        seen[node->node_rank] = true;
        cr_assert(eq(int, node->first_rank, node->node_rank), "one worker each");
        for (int j = 0; j < of->capacity; j++)
            if (before->nodes[i].active && before->nodes[j].active && of->nodes[j].active &&
                of->nodes[j].arrival == before->nodes[j].arrival && node->arrival == before->nodes[i].arrival)
                cr_assert(eq(int, before->nodes[i].node_rank < before->nodes[j].node_rank,
                             node->node_rank < of->nodes[j].node_rank));
    }
    cr_assert(n_active == of->n_nodes && n_active == of->world_size && n_active <= of->max_nodes);
    cr_assert(n_waiting == 0 || n_active == of->max_nodes);
    cr_assert(not(roster_has_newcomers(of)));
}

static void *copy_array(const void *from, size_t n_bytes)
{
    void *copy = malloc(n_bytes);

    memcpy(copy, from, n_bytes);
    return copy;
}

/* No agent is found by its identity in a copy. */
static struct roster copy_of(const struct roster *of)
{
    const size_t n_nodes = (size_t)of->capacity, n_seats = (size_t)of->max_nodes;
    struct roster copy = *of;

    copy.nodes = copy_array(of->nodes, n_nodes * sizeof *copy.nodes);
    copy.seats = copy_array(of->seats, n_seats * sizeof *copy.seats);
    copy.free_numbers = copy_array(of->free_numbers, n_nodes * sizeof *copy.free_numbers);
    copy.sorting = copy_array(of->sorting, (n_nodes + n_seats) * sizeof *copy.sorting);
    copy.identities = (struct table){ 0 };
    copy.entries = calloc(n_nodes, sizeof *copy.entries);
    return copy;
}

static void walk(const struct roster *of, int depth)
{
    static const char *const names[NAMES] = { "a", "b", "c" };

    n_walked++;
    for (int what = 0; depth > 0 && what < NAMES + 2 * 4 + 1; what++) {
        struct roster next = copy_of(of);
        bool done = false;

        if (what < NAMES) {
            done = roster_n_present(&next) < 5;
            if (done) {
                const struct proto_join join = another(names[what]);

                add_join_to(&next, &join);
            }
        } else if (what < NAMES + 8) {
            const int node = 1 + (what - NAMES) / 2;

            done = next.nodes[node].present;
            if (done && (what - NAMES) % 2 == 0)
                roster_remove(&next, node);
            else if (done && !next.nodes[node].leaving)
                roster_leave(&next, node);
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

Test(roster, a_node_in_quarantine_is_counted_nowhere_and_gets_no_seat)
{
    struct proto_join join;
    int node;

    set_up(1, 2);
    join = another("a");
    reseat(&roster);
    node = add_join(&join);
    roster_hold(&roster, node);
    cr_expect(roster_n_present(&roster) == 1 && !roster_has_newcomers(&roster) && !roster_full(&roster));
    reseat(&roster);
    cr_expect(eq(int, roster.n_nodes, 1));

    roster_release(&roster, node);
    cr_expect(roster_n_present(&roster) == 2 && roster_has_newcomers(&roster) && roster_full(&roster));
    reseat(&roster);
    cr_expect(roster.n_nodes == 2 && roster.nodes[node].node_rank == 1);
    roster_remove(&roster, node);
    cr_expect(eq(int, roster_n_present(&roster), 1));
}

Test(roster, no_world_forms_without_the_hosts_node)
{
    struct proto_join join;

    set_up(1, 2);
    join = another("a");
    add_join(&join);
    join = another("b");
    add_join(&join);
    roster_hold(&roster, 0);
    cr_expect(roster_n_present(&roster) == 2 && !roster_enough(&roster) && !roster_full(&roster));

    roster_release(&roster, 0);

    cr_expect(roster_enough(&roster) && roster_full(&roster));
}

/* A spare sits there, and no joining node may ask for it: two nodes of a fixed world, and one to spare. */
Test(roster, a_node_that_is_put_into_quarantine_loses_its_seat_when_the_generation_is_over)
{
    struct proto_refused refused;
    struct proto_join join;
    int slow, spare;

    set_up(2, 2);
    join = another("a");
    join.node_rank = 1;
    slow = add_join(&join);
    reseat(&roster);
    join = another("b");
    spare = add_join(&join);
    roster_hold(&roster, slow);
    cr_expect(roster.nodes[slow].active && roster.nodes[slow].seat == 1);
    cr_expect(roster_enough(&roster) && roster_has_newcomers(&roster));
    reseat(&roster);
    cr_expect(not(roster.nodes[slow].active));
    cr_expect(roster.n_nodes == 2 && roster.nodes[spare].node_rank == 1);
    join = another("c");
    join.node_rank = 1;
    cr_expect(not(roster_judge(&roster, &join, "10.0.0.9", &refused)));

    roster_release(&roster, slow);
    cr_expect(roster_n_present(&roster) == 3 && !roster_has_newcomers(&roster), "it is a spare");
    roster_remove(&roster, spare);
    reseat(&roster);
    cr_expect(roster.n_nodes == 2 && roster.nodes[slow].node_rank == 1);
}

/* It is lost before its generation is over. */
Test(roster, a_node_that_is_released_counts_as_what_it_is)
{
    struct proto_join join;
    int node;

    set_up(1, 2);
    join = another("a");
    node = add_join(&join);
    reseat(&roster);
    roster_hold(&roster, node);
    roster_release(&roster, node);
    cr_expect(roster_n_present(&roster) == 2 && !roster_has_newcomers(&roster));
    roster_remove(&roster, node);
    cr_expect(roster.n_staying == 1 && roster.n_staying_here == 1);
}

Test(roster, every_short_history_leaves_whole_ranks)
{
    for (int max = 2; max <= 3; max++) {
        tear_down();
        set_up(1, max);
        roster.capacity = 6; /* enough, and fast to copy */
        roster.n_free = 5;
        for (int i = 0; i < roster.n_free; i++)
            roster.free_numbers[i] = 5 - i;
        walk(&roster, DEPTH);
    }
    cr_assert(gt(long, n_walked, 10000), "%ld", n_walked);
}
