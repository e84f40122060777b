#include <criterion/criterion.h>

#include "agent/members/attendance.h"
#include "tests/unit/agent/forbid.h"

static struct attendance attendance;

static void expect(int n_nodes, const int *n_workers)
{
    cr_assert(attendance_begin(&attendance, n_nodes));
    for (int i = 0; i < n_nodes; i++)
        if (n_workers[i] > 0)
            cr_assert(attendance_expect(&attendance, i, n_workers[i]));
}

static void tear_down(void)
{
    attendance_fini(&attendance);
    cr_assert(!attendance_complete(&attendance), "nobody is expected");
    cr_assert(!attendance_has(&attendance, 0, 1));
}

TestSuite(attendance, .fini = tear_down);

Test(attendance, a_worker_that_is_known_has_come_and_others_have_not)
{
    expect(1, (int[]){ 2 });
    attendance_came(&attendance, 0, 10);
    attendance_came(&attendance, 0, 10); /* a second connection of it */

    cr_assert(attendance_has(&attendance, 0, 10) && !attendance_has(&attendance, 0, 11));
    cr_assert(!attendance_complete(&attendance));
    attendance_came(&attendance, 0, 11);
    cr_assert(attendance_complete(&attendance));
}

Test(attendance, of_another_node_all_have_come_once_it_made_as_many_connections)
{
    expect(3, (int[]){ 1, 0, 2 });
    attendance_came(&attendance, 2, 0);
    cr_assert(!attendance_has(&attendance, 2, 77), "which of the two is not known");
    attendance_came(&attendance, 2, 0);
    cr_assert(attendance_has(&attendance, 2, 77) && !attendance_has(&attendance, 1, 77));
    cr_assert(!attendance_complete(&attendance));
    attendance_came(&attendance, 0, 5);
    cr_assert(attendance_complete(&attendance), "a node that takes no part is not waited for");
}

Test(attendance, unknown_ones_and_known_ones_count_together)
{
    expect(1, (int[]){ 3 });
    attendance_came(&attendance, 0, 1);
    attendance_came(&attendance, 0, 0);
    cr_assert(!attendance_has(&attendance, 0, 2));
    attendance_came(&attendance, 0, 0);
    attendance_came(&attendance, 0, 0);
    cr_assert(attendance_has(&attendance, 0, 2) && attendance_complete(&attendance));
}

Test(attendance, nodes_that_are_none_are_not_minded)
{
    expect(1, (int[]){ 1 });
    attendance_came(&attendance, -1, 1);
    attendance_came(&attendance, 1, 1);
    cr_assert(!attendance_has(&attendance, -1, 1) && !attendance_has(&attendance, 1, 1));
    cr_assert(!attendance_expect(&attendance, 1, 1));
    for (int pid = 1; pid < 9; pid++)
        attendance_came(&attendance, 0, pid);
    cr_assert(attendance_has(&attendance, 0, 1));
    cr_assert(attendance_begin(&attendance, 1) && !attendance_has(&attendance, 0, 1), "a new generation");
}

Test(attendance, a_connection_looks_at_no_other_node)
{
    enum { N = 50000 };

    cr_assert(attendance_begin(&attendance, N));
    for (int i = 0; i < N; i++)
        cr_assert(attendance_expect(&attendance, i, 1));
    for (int i = 1; i < N; i++)
        attendance_came(&attendance, i, 0);

    forbid(&attendance.nodes[1], &attendance.nodes[N], true);
    cr_assert(!attendance_complete(&attendance));
    attendance_came(&attendance, 0, 77);
    attendance_came(&attendance, 0, 78);
    cr_assert(attendance_complete(&attendance) && attendance_has(&attendance, 0, 77));
    forbid(&attendance.nodes[1], &attendance.nodes[N], false);
}

Test(attendance, a_node_is_found_by_its_addresses_as_long_as_it_misses_workers)
{
    expect(4, (int[]){ 1, 1, 2, 1 });
    cr_assert(attendance_add_address(&attendance, 1, "10.0.0.1") &&
              attendance_add_address(&attendance, 1, "fd00::1") &&
              attendance_add_address(&attendance, 2, "10.0.0.2"));
    cr_assert_eq(attendance_node_at(&attendance, "fd00::1"), 1);
    cr_assert_eq(attendance_node_at(&attendance, "10.0.0.9"), -1);
    attendance_came(&attendance, 1, 0);
    cr_assert_eq(attendance_node_at(&attendance, "10.0.0.1"), -1);
    attendance_came(&attendance, 2, 0);
    cr_assert_eq(attendance_node_at(&attendance, "10.0.0.2"), 2, "it has come halfway");
    attendance_came(&attendance, 2, 0);
    cr_assert_eq(attendance_node_at(&attendance, "10.0.0.2"), -1);
}

Test(attendance, nodes_of_one_address_come_one_after_the_other_and_are_not_met_again)
{
    enum { N = 5000 };

    cr_assert(attendance_begin(&attendance, N));
    for (int i = 0; i < N; i++)
        cr_assert(attendance_expect(&attendance, i, 1) && attendance_add_address(&attendance, i, "::1"));
    for (int i = 0; i < N; i++) {
        cr_assert_leq(attendance.addresses.n_entries, (size_t)(N - i + 1),
                      "those that are complete are gone");
        attendance_came(&attendance, attendance_node_at(&attendance, "::1"), 0);
    }
    cr_assert(attendance_complete(&attendance));
    cr_assert_eq(attendance_node_at(&attendance, "::1"), -1);
}
