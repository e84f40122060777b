#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
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

/* Listens at the abstract name of the step, as any user of the machine can. */
static int take_name(const struct slurm_step *step, struct sockaddr_un *address, socklen_t *size)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int n;

    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "fsdprun-%lu-%s-%s",
                 (unsigned long)geteuid(), step->id, step->here);
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    cr_assert(eq(int, bind(fd, (struct sockaddr *)address, *size), 0));
    cr_assert(eq(int, listen(fd, 0), 0));
    return fd;
}

Test(first_task, connections_that_fill_its_socket_are_an_error_and_no_hang, .timeout = 60)
{
    struct slurm_step step = step_of("filled");
    struct sockaddr_un address;
    struct fsdp_err err = { 0 };
    int fds[16], n = 0, status = -1;
    socklen_t size;
    const int fd = take_name(&step, &address, &size);

    do
        fds[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    while (connect(fds[n], (struct sockaddr *)&address, size) == 0 && ++n < 16);
    cr_assert(lt(int, n, 16), "the queue is full");

    cr_expect(eq(int, first_task_await(&step, 50, &status, &err), FSDP_ERR_PEER));
    cr_expect(strstr(err.message, "too many connections") != NULL, "%s", err.message);
    cr_expect(eq(int, status, -1));
    for (int i = 0; i <= n; i++)
        close(fds[i]);
    close(fd);
}

Test(first_task, another_user_at_its_name_is_not_heard_and_not_waited_for, .timeout = 60)
{
    enum { STRANGER = 65534, HOURS_MS = 36000000 };
    struct slurm_step step = step_of("foreign");
    struct sockaddr_un address;
    struct fsdp_err err = { 0 };
    int status = -1, first, fd;
    socklen_t size;

    if (geteuid() != 0)
        cr_skip_test("only root can become another user");
    fd = take_name(&step, &address, &size);
    cr_assert(eq(int, seteuid(STRANGER), 0));
    cr_assert(eq(int, listen(fd, 8), 0)); /* SO_PEERCRED is that of the last listen() */
    cr_assert(eq(int, seteuid(0), 0));

    cr_expect(eq(int, first_task_begin(&first, &step, &err), FSDP_ERR_IO));
    cr_expect(strstr(err.message, "Address already in use") != NULL, "%s", err.message);
    cr_expect(eq(int, first_task_await(&step, HOURS_MS, &status, &err), FSDP_ERR_PEER));
    cr_expect(strstr(err.message, "another user has taken") != NULL, "%s", err.message);
    cr_expect(eq(int, status, -1));
    close(fd);
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
