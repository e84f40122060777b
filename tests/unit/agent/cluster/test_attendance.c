#include <criterion/criterion.h>

#include "agent/cluster/attendance.h"

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
