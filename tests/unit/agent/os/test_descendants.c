#include "agent/os/descendants.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

static void *live_on(void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (pause() < 0)
        continue;
    return arg;
}

/* Waits until /proc/PID/stat says that the first thread has ended. */
static void poll_until_first_ends(pid_t pid)
{
    char path[64], text[256] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (;; poll(NULL, 0, 1)) {
        FILE *file = fopen(path, "re");

        cr_assert(file != NULL && fgets(text, sizeof text, file) != NULL);
        fclose(file);
        if (strstr(text, ") Z ") != NULL)
            return;
    }
}

/* As one does whose other threads are in system calls when it is killed: the kernel calls it a zombie. */
Test(descendants, a_process_lives_until_its_last_thread_has_ended)
{
    pid_t root = fork(), below, pids[8];
    pthread_t thread;

    if (root == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (fork() == 0) {
            pthread_create(&thread, NULL, live_on, NULL);
            syscall(SYS_exit, 0);
        }
        for (;;)
            pause();
    }
    while (descendants_living_below(root, pids, 8) < 2)
        poll(NULL, 0, 1);
    below = pids[1];
    poll_until_first_ends(below);
    cr_expect_eq(descendants_living_below(root, pids, 8), 2);
    cr_expect_eq(descendants_running_below(root), 1);
    while (state_of(below) != 'S') /* that of the thread that lives, which may still begin */
        poll(NULL, 0, 1);

    descendants_signal_below(root, SIGKILL);
    while (state_of(below) != 'Z')
        poll(NULL, 0, 1);
    cr_expect_eq(descendants_living_below(root, pids, 8), 1);
    kill(root, SIGKILL);
    waitpid(root, NULL, 0);
}
