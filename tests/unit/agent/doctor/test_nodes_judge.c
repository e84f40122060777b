#include "agent/doctor/nodes.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { N = 4, N_PAIRS = N * (N - 1) / 2 };
static struct node_view nodes[N];
static struct pair pairs[N_PAIRS];
static struct doctor_report report;

/* Four equal nodes with 10 Gbit/s. */
static void begin(void)
{
    size_t n = 0;

    for (int a = 0; a < N; a++) {
        snprintf(nodes[a].name, sizeof nodes[a].name, "n%d", a);
        snprintf(nodes[a].version, sizeof nodes[a].version, "0.1.0 (abc)");
        nodes[a].sees_run_dir = true;
        for (int b = a + 1; b < N; b++)
            pairs[n++] =
                (struct pair){ .a = a, .b = b, .round_trip_ns = 50000, .forth = 1.1e9, .back = 1.2e9 };
    }
}

static void end(void)
{
    doctor_report_fini(&report);
}

TestSuite(doctor_nodes, .init = begin, .fini = end);

static struct pair *between(int a, int b)
{
    for (int i = 0; i < N_PAIRS; i++)
        if (pairs[i].a == a && pairs[i].b == b)
            return &pairs[i];
    return NULL;
}

static void judge(void)
{
    cr_assert(nodes_judge(&report, nodes, N, pairs, N_PAIRS, "/runs"));
}

/* The row of that node has this state and these words, and has advice if it is not ok. */
static void says(const char *node, const char *check, enum doctor_state state, const char *words)
{
    for (size_t i = 0; i < report.n; i++) {
        const struct doctor_row *row = &report.rows[i];

        if (strcmp(row->node, node) != 0 || strcmp(row->check, check) != 0)
            continue;
        cr_expect_eq(row->state, state, "%s of %s: %s", check, node, row->value);
        cr_expect_not_null(strstr(row->value, words), "%s of %s: \"%s\" lacks \"%s\"", check, node,
                           row->value, words);
        cr_expect_eq(row->advice[0] != '\0', state != DOCTOR_OK);
        return;
    }
    cr_expect(false, "no row %s of %s", check, node);
}

static int count(enum doctor_state state)
{
    int n = 0;

    for (size_t i = 0; i < report.n; i++)
        n += report.rows[i].state == state;
    return n;
}

Test(doctor_nodes, equal_nodes_are_well)
{
    judge();

    cr_expect_eq(count(DOCTOR_OK), (int)report.n);
    says("n2", "nodes.bandwidth", DOCTOR_OK, "median 1150 MB/s; least 1100 MB/s");
    says("n2", "nodes.roundtrip", DOCTOR_OK, "median 50 us");
    says("n2", "nodes.clock", DOCTOR_OK, "+0.0 ms");
    says("n2", "nodes.rundir", DOCTOR_OK, "/runs is the directory of n0");
}

Test(doctor_nodes, a_slow_node_is_named_and_its_peers_are_not)
{
    between(0, 3)->back = between(1, 3)->back = between(2, 3)->back = 0.3e9;
    between(0, 3)->forth = between(1, 3)->forth = between(2, 3)->forth = 0.3e9;
    judge();

    says("n3", "nodes.bandwidth", DOCTOR_WARN, "median 300 MB/s");
    says("n0", "nodes.bandwidth", DOCTOR_OK, "least 300 MB/s, with n3");
    cr_expect_eq(count(DOCTOR_WARN), 1);
}

Test(doctor_nodes, a_thin_pair_and_a_dead_one)
{
    between(0, 1)->forth = 12e6; /* 100 Mbit/s, in one direction */
    between(2, 3)->back = 1000.0;
    judge();

    says("n0", "nodes.bandwidth", DOCTOR_WARN, "least 12 MB/s, with n1");
    says("n1", "nodes.bandwidth", DOCTOR_WARN, "with n0");
    says("n2", "nodes.bandwidth", DOCTOR_FAIL, "with n3");
}

Test(doctor_nodes, a_clock_that_is_off_is_that_nodes_whoever_measured_it)
{
    between(0, 1)->clock_us = 250000; /* n1 is ahead by a quarter of a second */
    between(1, 2)->clock_us = between(1, 3)->clock_us = -250000;
    judge();

    says("n1", "nodes.clock", DOCTOR_WARN, "+250.0 ms");
    cr_expect_eq(count(DOCTOR_WARN), 1);

    doctor_report_fini(&report);
    between(0, 1)->clock_us = -INT64_C(400000000);
    between(1, 2)->clock_us = between(1, 3)->clock_us = INT64_C(400000000);
    judge();
    says("n1", "nodes.clock", DOCTOR_FAIL, "-400000.0 ms");
}

Test(doctor_nodes, a_pair_that_cannot_connect_fails_at_both_ends_with_the_reason)
{
    *between(1, 2) = (struct pair){ .a = 1, .b = 2, .error = "10.0.0.3: Connection timed out" };
    judge();

    says("n1", "nodes.reach", DOCTOR_FAIL, "n1 cannot reach n2: 10.0.0.3: Connection timed out");
    says("n2", "nodes.reach", DOCTOR_FAIL, "n1 cannot reach n2");
    says("n2", "nodes.bandwidth", DOCTOR_OK, "1150 MB/s");
    cr_expect_eq(count(DOCTOR_FAIL), 2);
}

Test(doctor_nodes, another_version_another_directory_and_a_long_way)
{
    snprintf(nodes[2].version, sizeof nodes[2].version, "0.0.9 (abc)");
    nodes[3].sees_run_dir = false;
    between(0, 1)->round_trip_ns = 30000000;
    judge();

    says("n2", "nodes.version", DOCTOR_FAIL, "0.0.9 (abc), and n0 has 0.1.0 (abc)");
    says("n3", "nodes.rundir", DOCTOR_WARN, "/runs is not the directory of n0");
    says("n1", "nodes.roundtrip", DOCTOR_WARN, "most 30000 us, with n0");
}
