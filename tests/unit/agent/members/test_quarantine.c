/*
 * How long a node that comes and goes has to wait, and how many generations it can cost. No clock runs here.
 */
#include "agent/members/quarantine.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>

static struct quarantine quarantine;
static const struct roster_node one = { .who = { .host = "n1", .address = "10.0.0.1", .order = -1 } };

static void forget(void)
{
    quarantine_fini(&quarantine);
}

TestSuite(quarantine, .fini = forget);

static int64_t came(const struct roster_node *node, int64_t now_ms)
{
    struct quarantine_why why;

    return quarantine_came(&quarantine, 1, node, now_ms, &why);
}

/* It comes and is lost, n times at once. */
static void flap(const struct roster_node *node, int64_t now_ms, int n)
{
    for (int i = 0; i < n; i++) {
        came(node, now_ms);
        quarantine_lost(&quarantine, 1, node, now_ms);
    }
}

Test(quarantine, the_first_return_is_free_and_each_later_one_waits_twice_as_long)
{
    static const int64_t seconds[] = { 0, 10, 20, 40, 80, 160, 320, 600, 600 };
    struct quarantine_why why;

    cr_expect(eq(i64, came(&one, 0), 0), "it was never lost");
    for (int i = 0; i < 9; i++) {
        quarantine_lost(&quarantine, 1, &one, 0);
        cr_expect(eq(i64, quarantine_came(&quarantine, 1, &one, 0, &why), seconds[i] * 1000));
        cr_expect(eq(int, why.strikes, i + 1));
    }
}

Test(quarantine, a_strike_is_forgotten_for_each_ten_minutes_in_the_world)
{
    int64_t now_ms = 0;

    for (int i = 0; i < 4; i++) {
        quarantine_lost(&quarantine, 1, &one, now_ms);
        came(&one, now_ms);
    }
    now_ms += 40000 + 2 * QUARANTINE_FORGET_MS; /* the wait itself counts for nothing */
    quarantine_lost(&quarantine, 1, &one, now_ms - 1);
    cr_expect(eq(i64, came(&one, now_ms), 40000), "four, less one, and one more");
    now_ms += 40000 + 9 * (int64_t)QUARANTINE_FORGET_MS;
    quarantine_lost(&quarantine, 1, &one, now_ms);
    cr_expect(eq(i64, came(&one, now_ms), 0), "only the last one");
}

Test(quarantine, other_nodes_are_left_alone)
{
    struct roster_node others[4] = { one, one, one, one };

    snprintf(others[0].who.host, sizeof others[0].who.host, "n2");
    snprintf(others[1].who.address, sizeof others[1].who.address, "10.0.0.2");
    others[2].who.order = 1;
    others[3].who.node_rank = 1;
    flap(&one, 0, 5);

    for (int i = 0; i < 4; i++)
        cr_expect(eq(i64, came(&others[i], 0), 0), "node %d", i);
    cr_expect(gt(i64, came(&one, 0), 0));
}

/* A node that names no address is known by the one that its connection comes from. */
Test(quarantine, a_node_without_an_address_of_its_own_is_known_by_its_connection)
{
    const struct roster_node here = { .who = { .host = "n1", .order = -1 }, .from = "10.0.0.1" },
                             there = { .who = { .host = "n1", .order = -1 }, .from = "10.0.0.2" };

    flap(&here, 0, 2);
    cr_expect(eq(i64, came(&here, 0), 10000));
    cr_expect(eq(i64, came(&there, 0), 0));
}

/* Eight agents of a host, which is restarted: each of them was lost once. */
Test(quarantine, agents_of_one_host_have_strikes_of_their_own)
{
    enum { AGENTS = 8 };
    struct quarantine_why why;

    for (int i = 1; i <= AGENTS; i++)
        quarantine_lost(&quarantine, i, &one, i);
    for (int i = 1; i <= AGENTS; i++) {
        cr_expect(eq(i64, quarantine_came(&quarantine, i, &one, 100, &why), 0), "agent %d", i);
        cr_expect(eq(int, why.strikes, 1));
    }
}

/* One of two flaps: its entry is its own again, by whatever number it comes. The other one is lost once. */
Test(quarantine, an_agent_that_flaps_leaves_its_neighbour_alone)
{
    struct quarantine_why why;

    quarantine_lost(&quarantine, 1, &one, 0);
    cr_expect(eq(i64, quarantine_came(&quarantine, 1, &one, 10, &why), 0));
    for (int i = 0; i < 4; i++) {
        quarantine_lost(&quarantine, 2 + i, &one, 20);
        quarantine_came(&quarantine, 3 + i, &one, 20, &why);
        cr_expect(eq(int, why.strikes, 1 + i));
    }
    quarantine_lost(&quarantine, 1, &one, 30);

    cr_expect(eq(i64, quarantine_came(&quarantine, 1, &one, 40, &why), 10000));
    cr_expect(eq(int, why.strikes, 2), "its own two");
    quarantine_gone(&quarantine, 1); /* its user stops it: no strike, and its entry waits for it */
    cr_expect(eq(i64, quarantine_came(&quarantine, 9, &one, 50, &why), 10000));
    cr_expect(eq(int, why.strikes, 2));
}

/* Its agent is started again, which is another one for the roster. */
Test(quarantine, a_node_that_was_put_aside_waits_for_the_rest_when_it_comes_again)
{
    struct roster_node other = one;
    struct quarantine_why why;

    quarantine_put_aside(&quarantine, 1, &one, 5, 0, 3600000);
    quarantine_gone(&quarantine, 1);
    snprintf(other.who.host, sizeof other.who.host, "n2");
    cr_expect(eq(i64, quarantine_came(&quarantine, 2, &other, 1000, &why), 0));
    cr_expect(eq(i64, quarantine_came(&quarantine, 3, &one, 1000000, &why), 2600000));
    cr_expect(eq(int, why.slow_rank, 5));
    cr_expect(eq(int, why.strikes, 0));

    quarantine_gone(&quarantine, 3);
    cr_expect(eq(i64, quarantine_came(&quarantine, 1, &one, 3600000, &why), 0));
    for (int i = 0; i < 4; i++) {
        quarantine_lost(&quarantine, 1, &one, 3600000);
        quarantine_came(&quarantine, 1, &one, 3600000, &why);
    }
    quarantine_put_aside(&quarantine, 1, &one, 6, 3640000 + QUARANTINE_FORGET_MS, 60000);
    quarantine_gone(&quarantine, 1);
    cr_expect(eq(i64, quarantine_came(&quarantine, 1, &one, 3690000 + QUARANTINE_FORGET_MS, &why), 20000));
    cr_expect(eq(int, why.slow_rank, -1), "its strikes, of which one is forgotten, hold it for longer");
    cr_expect(eq(int, why.strikes, 3));
}

Test(quarantine, a_full_table_forgets_the_node_whose_loss_is_longest_ago)
{
    struct roster_node node = one;

    for (int i = 0; i < QUARANTINE_NODES + 1; i++) {
        snprintf(node.who.host, sizeof node.who.host, "m%d", i);
        flap(&node, i, 2);
    }
    cr_expect(eq(int, quarantine.n, QUARANTINE_NODES));
    cr_expect(eq(i64, came(&node, 5000), 10000));
    snprintf(node.who.host, sizeof node.who.host, "m0");
    cr_expect(eq(i64, came(&node, 5000), 0));
    snprintf(node.who.host, sizeof node.who.host, "m1");
    cr_expect(eq(i64, came(&node, 5000), 10000));
}

/*
 * The worst node: it is lost as soon as it takes part, and comes back at once. Each of both begins a
 * generation.
 */
Test(quarantine, one_node_costs_few_generations_in_any_time)
{
    int64_t now_ms = 0;
    int n = 1;

    while (now_ms <= 1200 * 1000) {
        quarantine_lost(&quarantine, 1, &one, now_ms);
        n++;
        cr_assert(n <= (int)(4 + 2 * log2(1 + (double)now_ms / 10000)), "%d after %d ms", n, (int)now_ms);
        if (now_ms <= 60000)
            cr_assert(le(int, n, 9));
        now_ms += came(&one, now_ms);
        n++;
    }
    cr_assert(ge(int, n, 10), "it was taken in again and again");
}

/* Another coordinator */

static struct quarantine_note notes[QUARANTINE_NODES];

/* The coordinator is lost, and another one goes on with `most` notes of it, by a clock of its own. */
static int take_over(int64_t now_ms, int64_t then_ms, int most)
{
    const int n = quarantine_notes(&quarantine, now_ms, notes, most);

    quarantine_fini(&quarantine);
    for (int i = 0; i < n; i++)
        quarantine_restore(&quarantine, &notes[i], then_ms);
    return n;
}

static struct roster_node member(void)
{
    struct roster_node node = one;

    node.who.lost_by[0] = 1;
    return node;
}

Test(quarantine, after_a_take_over_a_node_that_is_away_waits_as_before)
{
    flap(&one, 0, 4);
    cr_assert(eq(int, take_over(0, 777, 7), 1));
    cr_expect(eq(i64, came(&one, 777), 40000));
}

Test(quarantine, after_a_take_over_a_node_that_waited_waits_again)
{
    const struct roster_node comes = member();

    flap(&one, 0, 4);
    came(&one, 0);
    take_over(39999, 0, 7);
    cr_expect(eq(i64, came(&comes, 0), 40000));
}

Test(quarantine, after_a_take_over_a_node_that_took_part_does_not_wait_and_keeps_its_strikes)
{
    const struct roster_node comes = member();

    flap(&one, 0, 4);
    came(&one, 0);
    take_over(40000, 0, 7);
    take_over(0, 0, 7); /* it has not come yet */
    cr_expect(eq(i64, came(&comes, 0), 0));
    quarantine_lost(&quarantine, 1, &comes, 0);
    cr_expect(eq(i64, came(&comes, 0), 80000));
}

Test(quarantine, strikes_that_are_forgotten_are_in_no_note)
{
    flap(&one, 0, 1);
    came(&one, 0);
    cr_expect(eq(int, quarantine_notes(&quarantine, QUARANTINE_FORGET_MS - 1, notes, 7), 1));
    cr_expect(eq(int, quarantine_notes(&quarantine, QUARANTINE_FORGET_MS, notes, 7), 0));
}

Test(quarantine, what_has_no_room_is_what_was_lost_least_often)
{
    struct roster_node nodes[4] = { one, one, one, one };

    for (int i = 0; i < 4; i++) {
        snprintf(nodes[i].who.host, sizeof nodes[i].who.host, "m%d", i);
        flap(&nodes[i], 0, i + 2);
    }
    quarantine_put_aside(&quarantine, 9, &one, 3, 0, 3600000);
    cr_assert(eq(int, take_over(1000, 0, 3), 3));
    cr_expect(eq(i64, came(&one, 0), 3599000), "it was put aside");
    cr_expect(eq(i64, came(&nodes[3], 0), 80000), "five times");
    cr_expect(eq(i64, came(&nodes[2], 0), 40000), "four times");
    cr_expect(eq(i64, came(&nodes[1], 0), 0));
}

Test(quarantine, the_node_that_led_has_a_strike_for_that)
{
    const struct roster_node comes = member();

    quarantine_lost_leader(&quarantine, quarantine_name(&one), 0);
    cr_expect(eq(i64, came(&comes, 0), 0), "the first return is free");
    take_over(0, 0, 7);
    quarantine_lost_leader(&quarantine, quarantine_name(&one), 0);
    cr_expect(eq(i64, came(&comes, 0), 10000));
}
