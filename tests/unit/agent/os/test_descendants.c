#include "agent/os/descendants.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/agent/sleeping.h"

TestSuite(descendants, .timeout = 60);

static char state_of(pid_t pid)
{
    char place[64];

    return descendants_state(pid, place, sizeof place);
}

/* Waits until a process of the tree is in that state. Returns its pid. */
static pid_t find(pid_t root, char state)
{
    pid_t pids[8];

    for (;; poll(NULL, 0, 1)) {
        const size_t n = descendants_living_below(root, pids, 8);

        for (size_t i = 0; i < n; i++)
            if (state_of(pids[i]) == state)
                return pids[i];
    }
}

Test(descendants, those_that_live_below_a_process_are_listed_after_it)
{
    pid_t root, ended, asleep, pids[8];
    int ends[2];

    cr_assert_eq(pipe(ends), 0);
    root = fork();
    if (root == 0) {
        close(ends[1]);
        if (fork() == 0)
            sleep_in_kernel(ends[0]);
        else if (fork() == 0)
            raise(SIGSTOP);
        for (;;)
            pause();
    }
    close(ends[0]);
    asleep = find(root, 'D');
    ended = find(root, 'T');
    cr_expect(asleep != root && ended != root);

    kill(ended, SIGKILL);
    while (state_of(ended) != 'Z')
        poll(NULL, 0, 1);
    cr_expect_eq(descendants_living_below(root, pids, 8), 3,
                 "two children, of which one is a zombie, and one below");
    cr_expect(pids[0] == root && pids[1] == asleep);
    cr_expect_eq(descendants_living_below(root, pids, 2), 2, "no more than there is room for");

    close(ends[1]);
    descendants_signal_below(root, SIGKILL);
    kill(root, SIGKILL);
    waitpid(root, NULL, 0);
}
