#include "launcher/first_task.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

/*
 * Sets the abstract name at which the tasks of a node meet. It contains the node's name, because several
 * nodes of a test cluster can be one host. Returns the size of the address.
 */
static socklen_t address_of(const struct slurm_step *step, struct sockaddr_un *address)
{
    const size_t room = sizeof address->sun_path - 1;
    int n;

    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    n = snprintf(address->sun_path + 1, room, "fsdprun-%lu-%s-%s", (unsigned long)geteuid(), step->id,
                 step->here);
    n = n < (int)room ? n : (int)room - 1;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/*
 * Is the other end of the connection a process of our user? Any user can bind such a name, or connect to it.
 */
static bool is_ours(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

enum fsdp_status first_task_begin(int *fd, const struct slurm_step *step, struct fsdp_err *err)
{
    struct sockaddr_un address;
    const socklen_t size = address_of(step, &address);

    *fd = -1;
    if (step->n_tasks_here < 2)
        return FSDP_OK;
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* a long queue, because strangers may connect too, and are sent away only at the end */
    if (*fd >= 0 && bind(*fd, (struct sockaddr *)&address, size) == 0 && listen(*fd, SOMAXCONN) == 0)
        return FSDP_OK;
    fsdp_fail(err, FSDP_ERR_IO, "the other tasks of this node cannot be told where the first one is: %s",
              strerror(errno));
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return FSDP_ERR_IO;
}

/* Returns the connection of one more task, or -1 if none has connected by the deadline. */
static int accept_task(int fd, int64_t deadline_ms)
{
    for (;;) {
        const int64_t left_ms = deadline_ms - clock_now_ms();
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        int task;

        if (poll(&polled, 1, left_ms > 0 ? (int)left_ms : 0) <= 0) {
            if (left_ms > 0 && errno == EINTR)
                continue;
            return -1;
        }
        task = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (task >= 0 && is_ours(task))
            return task;
        if (task >= 0)
            close(task);
    }
}

/*
 * Frees the name before it tells any task. A task that was told may start the next fsdprun at once, and that
 * one must not connect to this process.
 */
void first_task_end(int fd, const struct slurm_step *step, int status, int64_t timeout_ms)
{
    const int64_t deadline_ms = clock_now_ms() + timeout_ms;
    const unsigned char word = (unsigned char)status;
    const int most = step->n_tasks_here - 1;
    int *tasks, n = 0;

    if (fd < 0)
        return;
    tasks = calloc((size_t)most, sizeof *tasks);
    while (tasks != NULL && n < most && (tasks[n] = accept_task(fd, deadline_ms)) >= 0)
        n++;
    close(fd);
    while (n-- > 0) {
        (void)send(tasks[n], &word, 1, MSG_NOSIGNAL);
        close(tasks[n]);
    }
    free(tasks);
}

/*
 * Returns a connection to the first task, or -1 if there is none by the deadline. connect() never blocks
 * here: where strangers fill the queue of the name, it would do so for ever. If another user listens at the
 * name, this function gives up at once: the first task cannot take that name either.
 *   why  receives the reason for the last failure
 */
static int connect_to_first(const struct slurm_step *step, int64_t deadline_ms, const char **why)
{
    const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };
    struct sockaddr_un address;
    const socklen_t size = address_of(step, &address);

    for (;;) {
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        *why = "it has not started fsdprun in time";
        if (fd >= 0 && connect(fd, (struct sockaddr *)&address, size) == 0) {
            if (is_ours(fd) && fcntl(fd, F_SETFL, 0) == 0)
                return fd;
            *why = "another user has taken the name of its socket";
            deadline_ms = 0;
        } else if (errno == EAGAIN) {
            *why = "too many connections wait at its socket";
        }
        if (fd >= 0)
            close(fd);
        if (clock_now_ms() >= deadline_ms)
            return -1;
        nanosleep(&pause, NULL);
    }
}

/*
 * Ignores the signals that can be ignored. Slurm sends a signal to all tasks, but only the first task decides
 * what it means. The others must live until the first one has ended.
 */
static void ignore_signals(void)
{
    static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)signal(signals[i], SIG_IGN);
}

enum fsdp_status first_task_await(const struct slurm_step *step, int64_t timeout_ms, int *status,
                                  struct fsdp_err *err)
{
    unsigned char word;
    const char *why;
    ssize_t n;
    int fd;

    ignore_signals();
    fd = connect_to_first(step, clock_now_ms() + timeout_ms, &why);
    if (fd < 0)
        return fsdp_fail(err, FSDP_ERR_PEER, "the first task of this node cannot be reached: %s", why);
    do
        n = recv(fd, &word, 1, 0);
    while (n < 0 && errno == EINTR);
    close(fd);
    *status = n == 1 ? word : 128 + SIGKILL;
    return FSDP_OK;
}
