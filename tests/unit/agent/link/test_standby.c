/*
 * Which local ranks have a process on standby.
 */
#include "agent/link/standby.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <unistd.h>

static struct standby *standby;
static int n_killed;

static int kill_group(void *arg, const struct os_child *child, int signal)
{
    n_killed += child->pid > 0 && signal == SIGKILL;
    return 0;
}

static const struct agent_os os = { .kill_group = kill_group };

static void set_up(void)
{
    standby = standby_create(2);
}

static void tear_down(void)
{
    standby_destroy(standby, &os);
}

TestSuite(standby, .init = set_up, .fini = tear_down);

static int any_fd(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void put(int local_rank, pid_t pid)
{
    const struct standby_process process = { { .pid = pid, .pidfd = any_fd() }, any_fd(), any_fd() };

    standby_put(standby, local_rank, &process);
}

Test(standby, each_place_is_named_once_a_generation_until_it_is_filled)
{
    cr_expect(eq(int, standby_next(standby, 0), 0));
    cr_expect(eq(int, standby_next(standby, 0), 1));
    cr_expect(eq(int, standby_next(standby, 0), -1), "both were tried");
    put(1, 11);
    cr_expect(eq(int, standby_next(standby, 1), 0));
    cr_expect(eq(int, standby_next(standby, 1), -1), "the other has one");
}

Test(standby, a_process_is_taken_once_and_one_that_ended_is_not_there)
{
    struct standby_process process;
    pid_t pids[2];

    put(0, 10);
    put(1, 11);
    cr_expect(eq(sz, standby_pids(standby, pids), 2));
    cr_expect(eq(int, close(standby_ended(standby, 10)), 0), "the caller closes what has its exec");
    cr_expect(eq(int, standby_ended(standby, 999), -1));
    cr_expect(standby_pids(standby, pids) == 1 && pids[0] == 11);
    cr_expect(not(standby_take(standby, 0, &process)));
    cr_assert(standby_take(standby, 1, &process) && process.child.pid == 11);
    close(process.child.pidfd);
    close(process.socket);
    close(process.exec_fd);
    cr_expect(not(standby_take(standby, 1, &process)));
    cr_expect(not(standby_take(standby, 2, &process)), "there is no such place");
    cr_expect(not(standby_take(NULL, 0, &process)));
}

Test(standby, what_is_left_is_killed_and_closed)
{
    const int first = any_fd();

    put(0, 10);
    standby_destroy(standby, &os);
    standby = NULL;
    cr_expect(eq(int, n_killed, 1));
    cr_expect(eq(int, any_fd(), first + 1), "no descriptor is left");
}
