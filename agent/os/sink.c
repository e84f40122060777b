#include "agent/os/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* the largest pipe that any user may have, so that writer and reader switch less often */
enum { PIPE_BYTES = 1 << 20 };

static int target(const struct sink *sink)
{
    return sink->own >= 0 ? sink->own : sink->fd;
}

void sink_init(struct sink *sink, int fd)
{
    struct epoll_event wanted = { .events = EPOLLOUT };
    char path[64];
    struct stat stat;

    *sink = (struct sink){ .kind = SINK_NONE, .fd = fd, .own = -1, .ready = -1 };
    if (fd < 0 || fstat(fd, &stat) < 0)
        return;
    sink->tty = isatty(fd) == 1;
    if (S_ISSOCK(stat.st_mode)) {
        sink->kind = SINK_SOCKET;
    } else if (S_ISFIFO(stat.st_mode) || sink->tty) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        sink->own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        sink->kind = sink->own >= 0                             ? SINK_REOPENED
                     : errno == ENXIO && S_ISFIFO(stat.st_mode) ? SINK_NONE
                                                                : SINK_POLLED;
        if (S_ISFIFO(stat.st_mode) && sink->own >= 0 && fcntl(sink->own, F_GETPIPE_SZ) < PIPE_BYTES)
            fcntl(sink->own, F_SETPIPE_SZ, PIPE_BYTES);
    } else {
        sink->kind = SINK_FILE; /* also devices such as /dev/null */
    }
    if (sink->kind == SINK_NONE || sink->kind == SINK_FILE)
        return;
    sink->ready = epoll_create1(EPOLL_CLOEXEC);
    if (sink->ready >= 0 && epoll_ctl(sink->ready, EPOLL_CTL_ADD, target(sink), &wanted) < 0) {
        close(sink->ready);
        sink->ready = -1;
    }
}

void sink_fini(struct sink *sink)
{
    if (sink->ready >= 0)
        close(sink->ready);
    if (sink->own >= 0)
        close(sink->own);
    *sink = (struct sink){ .kind = SINK_NONE, .fd = -1, .own = -1, .ready = -1 };
}

bool sink_same(int fd, int other_fd)
{
    struct stat a, b;

    if (fd < 0 || other_fd < 0 || fstat(fd, &a) < 0 || fstat(other_fd, &b) < 0)
        return false;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_rdev == b.st_rdev;
}

ssize_t sink_write(struct sink *sink, const char *bytes, size_t n)
{
    ssize_t written;

    switch (sink->kind) {
    case SINK_NONE:
        return (ssize_t)n;
    case SINK_SOCKET:
        written = send(sink->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case SINK_POLLED:
        if (!sink_wait(sink, 0))
            return 0;
        written = write(sink->fd, bytes, n < 256 ? n : 256);
        break;
    case SINK_FILE:
    case SINK_REOPENED:
    default:
        written = write(target(sink), bytes, n);
        break;
    }
    if (written >= 0)
        return written;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    sink->kind = SINK_NONE;
    return -1;
}

bool sink_wait(const struct sink *sink, int timeout_ms)
{
    struct pollfd pollfd = { .fd = target(sink), .events = POLLOUT };

    if (sink->kind == SINK_NONE || sink->kind == SINK_FILE)
        return true;
    return poll(&pollfd, 1, timeout_ms) > 0;
}

void sink_say(int fd, const char *text, int patience_ms)
{
    size_t n = strlen(text);
    struct sink sink;

    sink_init(&sink, fd);
    while (n > 0) {
        const ssize_t taken = sink_write(&sink, text, n);

        if (taken < 0 || (taken == 0 && !sink_wait(&sink, patience_ms)))
            break;
        text += taken;
        n -= (size_t)taken;
    }
    sink_fini(&sink);
}

int sink_width(const struct sink *sink)
{
    struct winsize size;

    if (sink->tty && ioctl(sink->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}
