#include "agent/watch/python_stacks.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char answer[] =
    "Current thread 0x1 (most recent call first):\n  File \"/p/a.py\", line 7 in f\n";
static int memfd;
static pid_t child;

TestSuite(python_stacks, .timeout = 60);

static void write_answer(int signal)
{
    (void)signal;
    (void)!write(memfd, answer, sizeof answer - 1);
}

/* Fork a process that answers the signal, as a Python would, and wait until it does. */
static struct python_ask fork_python(bool has_memfd)
{
    int ready[2];
    char byte;

    memfd = python_stacks_open();
    cr_assert(memfd >= 0 && pipe(ready) == 0);
    child = fork();
    if (child == 0) {
        signal(python_stacks_signal(), write_answer);
        if (!has_memfd)
            close(memfd);
        (void)!write(ready[1], "", 1);
        for (;;)
            pause();
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    return (struct python_ask){ .worker = child, .fd = memfd, .worker_fd = memfd };
}

static void end_python(void)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Ask, and wait for the answer also on a machine that is too busy for it to come in time. */
static off_t answered_bytes(struct python_ask *at)
{
    struct stat info = { 0 };

    python_stacks_find(at, 1);
    cr_assert_eq(at->python, child);
    python_stacks_take(at, 1, "/p");
    while (info.st_size == 0) {
        poll(NULL, 0, 10);
        cr_assert_eq(fstat(memfd, &info), 0);
    }
    return info.st_size;
}

Test(python_stacks, a_second_ask_replaces_the_first_answer)
{
    struct python_ask at = fork_python(true);

    cr_expect_eq(answered_bytes(&at), sizeof answer - 1);
    cr_expect_eq(answered_bytes(&at), sizeof answer - 1);
    end_python();
}

Test(python_stacks, a_process_that_handles_the_signal_without_the_memfd_is_none)
{
    struct python_ask at = fork_python(false);

    python_stacks_find(&at, 1);
    cr_expect_eq(at.python, 0);
    end_python();
}
