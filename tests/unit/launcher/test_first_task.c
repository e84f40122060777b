#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/first_task.h"

enum { LONG_MS = 50000 };

/* A step of its own for each test, with three tasks on this node. */
static struct slurm_step step_of(const char *test)
{
    struct slurm_step step = { .n_nodes = 1, .n_tasks_here = 3, .here = "n1" };

    snprintf(step.id, sizeof step.id, "%s.%d", test, (int)getpid());
    return step;
}

/* Starts a task that waits for the first one, and ends with its status; 99: there was none. */
static pid_t other_task(const struct slurm_step *step, int64_t timeout_ms)
{
    const pid_t pid = fork();
    int status;

    if (pid != 0)
        return pid;
    _exit(first_task_await(step, timeout_ms, &status, NULL) == FSDP_OK ? status : 99);
}

static int status_of(pid_t pid)
{
    int status;

    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Test(first_task, the_others_wait_for_its_status_whoever_comes_first, .timeout = 60)
{
    struct slurm_step step = step_of("status");
    const pid_t early = other_task(&step, LONG_MS);
    pid_t late;
    int fd;

    cr_assert(eq(int, first_task_begin(&fd, &step, NULL), FSDP_OK));
    late = other_task(&step, LONG_MS);
    first_task_end(fd, &step, 77, LONG_MS);

    cr_expect(eq(int, status_of(early), 77));
    cr_expect(eq(int, status_of(late), 77));
}

Test(first_task, signals_for_the_whole_step_end_no_other_task, .timeout = 60)
{
    struct slurm_step step = step_of("signals");
    struct slurm_step pair = step;
    pid_t other;
    int fd;

    pair.n_tasks_here = 2;
    cr_assert(eq(int, first_task_begin(&fd, &pair, NULL), FSDP_OK));
    for (int i = 0; i < 2; i++)
        signal(i == 0 ? SIGTERM : SIGUSR1, SIG_IGN); /* for the moment in which the child is still us */
    other = other_task(&pair, LONG_MS);
    kill(other, SIGTERM);
    kill(other, SIGUSR1);
    first_task_end(fd, &pair, 0, LONG_MS);

    cr_expect(eq(int, status_of(other), 0));
}

Test(first_task, if_it_is_killed_the_others_end_as_killed, .timeout = 60)
{
    struct slurm_step step = step_of("killed");
    pid_t first, other;
    int ready[2], fd;
    char byte;

    cr_assert(eq(int, pipe(ready), 0));
    first = fork();
    if (first == 0) {
        if (first_task_begin(&fd, &step, NULL) == FSDP_OK && write(ready[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    cr_assert(eq(long, read(ready[0], &byte, 1), 1));
    other = other_task(&step, LONG_MS);
    kill(first, SIGKILL);
    cr_expect(eq(int, status_of(first), -SIGKILL));

    /* It may have been too late for a connection; then there is none to wait for. */
    step.n_tasks_here = 2;
    if (first_task_begin(&fd, &step, NULL) == FSDP_OK)
        first_task_end(fd, &step, 128 + SIGKILL, 1000);
    cr_expect(eq(int, status_of(other), 128 + SIGKILL));
}

Test(first_task, if_it_does_not_begin_that_is_an_error)
{
    struct slurm_step step = step_of("absent");
    struct fsdp_err err = { 0 };
    int status = -1;

    cr_expect(eq(int, first_task_await(&step, 0, &status, &err), FSDP_ERR_PEER));
    cr_expect(strstr(err.message, "first task of this node") != NULL, "%s", err.message);
    cr_expect(eq(int, status, -1));
}

Test(first_task, one_that_does_not_come_is_not_waited_for_for_ever)
{
    struct slurm_step step = step_of("missing");
    int fd, again;

    cr_assert(eq(int, first_task_begin(&fd, &step, NULL), FSDP_OK));
    first_task_end(fd, &step, 0, 0);

    cr_assert(eq(int, first_task_begin(&again, &step, NULL), FSDP_OK), "the name is free again");
    first_task_end(again, &step, 0, 0);
}

Test(first_task, a_name_that_is_taken_is_an_error)
{
    struct slurm_step step = step_of("taken");
    struct fsdp_err err = { 0 };
    int fd, second;

    cr_assert(eq(int, first_task_begin(&fd, &step, NULL), FSDP_OK));
    cr_expect(eq(int, first_task_begin(&second, &step, &err), FSDP_ERR_IO));
    cr_expect(second == -1 && err.message[0] != '\0');
    first_task_end(fd, &step, 0, 0);
}

Test(first_task, a_task_alone_needs_no_socket)
{
    struct slurm_step step = step_of("alone");
    int fd;

    step.n_tasks_here = 1;
    cr_assert(eq(int, first_task_begin(&fd, &step, NULL), FSDP_OK));
    cr_expect(eq(int, fd, -1));
    first_task_end(fd, &step, 3, 0);
}
