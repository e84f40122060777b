/*
 * The lease of a node, and what the guard does when it is over. The guard of these tests is the test itself,
 * and the agent is a child of it.
 */
#include "agent/os/guard_lease.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/os/deadlines.h"
#include "agent/os/descendants.h"
#include "agent/os/os.h"
#include "shard_runtime/core/clock.h"

/* The host may have booted a moment ago: nothing was sent long before now. */
enum { AGO_MS = 100, HOUR_MS = 3600000, MS = 1000000 };

static struct lease lease;

static void make(void)
{
    cr_assert(eq(int, lease_create(&lease, NULL), FSDP_OK));
}

static void clear(void)
{
    descendants_end(10000, NULL, 0);
    lease_destroy(&lease);
}

TestSuite(lease, .init = make, .fini = clear, .timeout = 300);

/* A question that was sent so long ago is answered now. */
static void answer(int64_t ago_ms, int64_t lease_ms)
{
    lease_extend(&lease, clock_boot_ns() - ago_ms * MS, lease_ms);
}

Test(lease, it_counts_from_the_sending_of_the_question)
{
    cr_assert(not(lease_runs(&lease)), "nothing was answered yet");
    answer(AGO_MS, AGO_MS);
    cr_assert(not(lease_runs(&lease)), "the answer took as long as the lease");
    answer(AGO_MS, HOUR_MS);
    cr_assert(lease_runs(&lease));
    cr_assert(eq(i64, lease_over_ms(&lease), 0));
    lease_clear(&lease);
    cr_assert(not(lease_runs(&lease)), "the agent joins again");
}

Test(lease, the_guard_finds_what_the_agent_left_last)
{
    char first[] = "the first", second[] = "the second", found[LEASE_WILL_BYTES];

    cr_assert(not(lease_inherit(&lease, found, sizeof first)), "nothing was left yet");
    lease_bequeath(&lease, first, sizeof first);
    lease_bequeath(&lease, second, sizeof second);
    cr_assert(not(lease_inherit(&lease, found, sizeof first)));
    cr_assert(lease_inherit(&lease, found, sizeof second));
    cr_assert(eq(str, found, second));

    lease_bequeath(&lease, NULL, 0);

    cr_assert(not(lease_inherit(&lease, found, sizeof second)), "it has left in order");
}

Test(lease, an_older_answer_or_one_from_the_future_changes_nothing)
{
    int64_t until_ns;

    answer(0, HOUR_MS);
    lease_begin(&lease, 7);
    until_ns = lease_look(&lease);
    cr_assert(gt(i64, until_ns, clock_boot_ns()));
    answer(10, HOUR_MS);
    answer(-HOUR_MS, HOUR_MS);
    cr_assert(eq(i64, lease_look(&lease), until_ns));
}

/* The guard may have begun to kill: no late answer may let the same ranks run again. */
Test(lease, one_that_is_over_stays_over_until_the_next_generation)
{
    answer(AGO_MS, 1);
    cr_assert(not(lease_is_over(&lease)), "no generation is under it");
    cr_assert(eq(i64, lease_look(&lease), 0));
    lease_begin(&lease, 0);
    cr_assert(lease_is_over(&lease));
    cr_assert(ge(i64, lease_over_ms(&lease), AGO_MS - 1));
    answer(0, HOUR_MS);
    cr_assert(lease_is_over(&lease) && lease_look(&lease) == INT64_MIN);

    lease_end(&lease);
    cr_assert(not(lease_is_over(&lease)));
    answer(0, HOUR_MS);
    lease_begin(&lease, 1);
    cr_assert(not(lease_is_over(&lease)));
}

/* The time passes while no process looks, as on a host that was suspended. */
Test(lease, its_end_wakes_the_guard)
{
    struct pollfd timer = { .fd = lease.timer, .events = POLLIN };

    answer(0, 50);
    lease_begin(&lease, 0);
    cr_assert(eq(int, poll(&timer, 1, 60000), 1));
    cr_assert(lease_is_over(&lease));
}

/* The guard */

enum { SLEEPERS = 3 };

/* Waits for the end of the pipe: it is held by processes that have not ended. */
static bool all_ended(int pipe)
{
    struct pollfd end = { .fd = pipe, .events = POLLIN };

    return poll(&end, 1, 60000) == 1 && (end.revents & POLLHUP) != 0;
}

/*
 * An agent that stands still, with SLEEPERS processes below it. One is a rank that is stopped too, one
 * ignores TERM, and one is in a session of its own. Each says that it is there by a byte.
 */
static pid_t stopped_agent(int *out)
{
    int pipes[2], agent_status;
    pid_t agent;

    cr_assert(eq(int, pipe(pipes), 0));
    agent = fork();
    if (agent == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        for (int i = 0; i < SLEEPERS; i++)
            if (fork() == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                signal(SIGTERM, SIG_IGN);
                if (i == 2)
                    setsid();
                (void)!write(pipes[1], "", 1);
                if (i == 0)
                    raise(SIGSTOP);
                for (;;)
                    pause();
            }
        close(pipes[1]);
        raise(SIGSTOP);
        _exit(0);
    }
    close(pipes[1]);
    *out = pipes[0];
    cr_assert(eq(int, waitpid(agent, &agent_status, WUNTRACED), agent));
    for (int i = 0; i < SLEEPERS; i++) {
        char byte;

        cr_assert(eq(i64, read(pipes[0], &byte, 1), 1));
    }
    return agent;
}

static bool some_live(int pipe)
{
    return poll(&(struct pollfd){ .fd = pipe, .events = POLLIN }, 1, 0) == 0;
}

Test(lease, the_guard_kills_what_is_below_a_stopped_agent_and_not_the_agent)
{
    int ranks, status;
    struct guard_lease guard = { .lease = lease, .agent = stopped_agent(&ranks) };
    struct lease longer;

    cr_assert(eq(int, lease_create(&longer, NULL), FSDP_OK));
    lease_extend(&longer, clock_boot_ns(), HOUR_MS);
    lease_begin(&longer, 0);
    guard.lease = longer;
    guard_lease_look(&guard);
    guard.lease = lease;
    guard_lease_look(&guard);
    cr_assert(some_live(ranks), "one lease runs, and no generation is under the other");
    lease_destroy(&longer);

    answer(AGO_MS, 1);
    lease_begin(&lease, 1);
    guard_lease_look(&guard);
    cr_assert(all_ended(ranks));
    cr_assert(eq(int, waitpid(guard.agent, &status, WNOHANG), 0), "the agent still stands");
    kill(guard.agent, SIGCONT);
    cr_assert(eq(int, waitpid(guard.agent, &status, 0), guard.agent));
    cr_assert(eq(int, status, 0), "it goes on, and ends by itself");
}

/* A process that was forked while the first pass was under way is found by a later one. */
Test(lease, the_guard_passes_again_until_the_agent_says_that_none_is_left)
{
    struct guard_lease guard = { .lease = lease, .agent = getpid() };
    struct pollfd timer = { .fd = lease.timer, .events = POLLIN };

    answer(AGO_MS, 1);
    lease_begin(&lease, 0);
    for (int i = 0; i < 3; i++) {
        int status;
        pid_t late = fork();

        if (late == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        guard_lease_look(&guard);
        cr_assert(eq(int, waitpid(late, &status, 0), late));
        cr_assert(eq(int, status, SIGKILL));
        cr_assert(eq(int, poll(&timer, 1, 60000), 1), "the next pass comes");
    }
    lease_end(&lease);
    guard_lease_look(&guard);
    cr_assert(eq(int, poll(&timer, 1, 0), 0));
}

/* Ctrl-Z: a guard that stood still could not kill a rank that runs. */
Test(lease, the_guard_stands_still_only_when_every_rank_does)
{
    int ranks;
    struct guard_lease guard = { .lease = lease, .agent = stopped_agent(&ranks) };

    cr_assert(gt(sz, descendants_running_below(guard.agent), 0));
    while (!guard_lease_all_stopped(&guard))
        ;
    cr_assert(eq(sz, descendants_running_below(guard.agent), 0));
    guard.lease.page = NULL;
    cr_assert(guard_lease_all_stopped(&guard), "one node has no lease");
}

/* The host's lease holds for all nodes, and an agent may have to wait for it at the end. */
Test(lease, the_guards_slack_is_that_of_the_hosts_lease_once_it_is_known)
{
    static const int64_t hosts_ms[] = { 1000, 3000, 20000, 59999, HOUR_MS };
    struct guard_lease guard = { .lease = lease };

    cr_expect(eq(i64, guard_lease_slack_ms(&guard, 20000), GUARD_SLACK_MS + 44000), "its own");
    for (size_t i = 0; i < sizeof hosts_ms / sizeof *hosts_ms; i++) {
        answer(0, LEASE_RANKS_MS(hosts_ms[i]));
        cr_expect(
            eq(i64, guard_lease_slack_ms(&guard, 20000), GUARD_SLACK_MS + 2 * LEASE_END_MS(hosts_ms[i])));
    }
    guard.lease.page = NULL;
    cr_expect(eq(i64, guard_lease_slack_ms(&guard, 3000), GUARD_SLACK_MS + 6600), "one node has no lease");
}

/* A rank that is started late */

/* The agent was stopped between its look at the lease and the start of the rank. */
Test(lease, a_rank_that_is_started_after_the_end_does_not_execute_its_program)
{
    static char *const argv[] = { "true", NULL }, *const environment[] = { NULL };
    struct os_baseline baseline;
    struct os_spawn spawn = { .path = "/bin/true",
                              .argv = argv,
                              .envp = environment,
                              .stdio = { 0, 1, 2 },
                              .keep_fds = { -1, -1, -1, -1 },
                              .baseline = &baseline,
                              .lease = &lease };
    struct os_spawn_failure failure;

    os_baseline_capture(&baseline);
    answer(0, HOUR_MS);
    for (int over = 0; over < 2; over++) {
        struct os_child child;
        siginfo_t info;

        if (over) {
            lease_destroy(&lease);
            make();
            answer(AGO_MS, 1);
        }
        lease_begin(&lease, over);
        cr_assert(agent_os_linux.spawn(NULL, &spawn, &child, &failure));
        cr_assert(eq(int, poll(&(struct pollfd){ .fd = child.pidfd, .events = POLLIN }, 1, 60000), 1));
        cr_assert(agent_os_linux.reap(NULL, &child, &info));
        cr_assert(info.si_code == CLD_EXITED && info.si_status == (over ? 127 : 0), "%d", info.si_status);
    }
}
