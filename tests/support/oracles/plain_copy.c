/*
 * The yardstick of the output path: one thread that reads what workers write and writes it on, and nothing
 * else.
 *   plain_copy FOLDER WORKERS PROGRAM ARGS...
 * starts WORKERS of them with RANK set, and reads the two pipes of each as they have bytes (epoll, 256 KiB a
 * read). It writes every read to FOLDER/RANK.out or .err, and then to stdout. It ends when all pipes are at
 * their end. It looks at no byte: no lines, no prefixes, no mercy for a slow reader.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, STREAMS_MAX = 256 };

static char buffer[READ_BYTES];
static struct {
    int pipe, file;
} streams[STREAMS_MAX];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, bytes, n);

        if (done < 0 && errno != EINTR)
            fail("write");
        bytes += done < 0 ? 0 : done;
        n -= done < 0 ? 0 : (size_t)done;
    }
}

static int open_stream(const char *folder, int i, int epoll)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = (unsigned)i };
    char path[4096];
    int fds[2];

    snprintf(path, sizeof path, "%s/%d.%s", folder, i / 2, i % 2 == 0 ? "out" : "err");
    streams[i].file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (streams[i].file < 0 || pipe2(fds, O_CLOEXEC) < 0)
        fail(path);
    fcntl(fds[0], F_SETPIPE_SZ, READ_BYTES);
    streams[i].pipe = fds[0];
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &event) < 0)
        fail("epoll_ctl");
    return fds[1];
}

static void start_worker(const char *folder, int rank, int epoll, char **argv)
{
    const int out = open_stream(folder, 2 * rank, epoll), err = open_stream(folder, 2 * rank + 1, epoll);
    char number[16];

    if (fork() == 0) {
        setsid(); /* as fsdprun's: where each session has its share of the CPUs, so does each worker */
        snprintf(number, sizeof number, "%d", rank);
        setenv("RANK", number, 1);
        dup2(out, 1);
        dup2(err, 2);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(out);
    close(err);
}

int main(int argc, char **argv)
{
    const int n_workers = argc > 3 ? atoi(argv[2]) : 0, epoll = epoll_create1(EPOLL_CLOEXEC);
    int n_open = 2 * n_workers, status, failed = 0;

    if (n_workers < 1 || n_open > STREAMS_MAX) {
        fprintf(stderr, "usage: plain_copy FOLDER WORKERS PROGRAM ARGS...\n");
        return 2;
    }
    fcntl(1, F_SETPIPE_SZ, 1 << 20); /* as the agent does: the comparison is of what a thread does */
    for (int rank = 0; rank < n_workers; rank++)
        start_worker(argv[1], rank, epoll, argv + 3);
    while (n_open > 0) {
        struct epoll_event events[64];
        const int n_events = epoll_wait(epoll, events, 64, -1);

        for (int i = 0; i < n_events; i++) {
            const unsigned which = events[i].data.u32;
            const ssize_t n = read(streams[which].pipe, buffer, sizeof buffer);

            if (n < 0 && errno != EINTR)
                fail("read");
            if (n == 0) {
                close(streams[which].pipe);
                n_open--;
            } else if (n > 0) {
                write_all(streams[which].file, buffer, (size_t)n);
                write_all(1, buffer, (size_t)n);
            }
        }
    }
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}
