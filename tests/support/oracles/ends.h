/* What becomes of a process that runs into its end. */
#ifndef TESTS_SUPPORT_ENDS_H
#define TESTS_SUPPORT_ENDS_H

#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Run body() in a process of its own, which also has a child that only waits. Return the exit status of that
 * process (-1: it was killed), and in `text` what it wrote to stderr. Returns only after the child has ended
 * as well.
 */
static int run_to_its_end(void (*body)(void), char *text, size_t size)
{
    int ends[2], status = 0;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    cr_assert_eq(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        if (fork() == 0) {
            alarm(60); /* a bug of the test must not leave it behind */
            pause();   /* it holds stderr open: end of file comes once it is dead */
        }
        body();
        _exit(0);
    }
    close(ends[1]);
    while (n < size - 1 && (got = read(ends[0], text + n, size - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(ends[0]);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
