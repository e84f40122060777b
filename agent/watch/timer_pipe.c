#include "agent/watch/timer_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "agent/os/descendants.h"
#include "agent/os/os.h"
#include "agent/record/rundir.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"

enum { PATH_BYTES = 4096, BUFFER_BYTES = 64 * 1024, TRIES = 16 };

struct timer_pipe {
    struct timer_handlers handlers;
    struct timers timers;
    uv_poll_t lines, clock;
    int fifo, timer;
    int n_handles;
    bool told_full, told_unfit;
    size_t n_buffer;
    bool overlong; /* the line that arrives is too long; its rest is dropped */
    char path[PATH_BYTES];
    char buffer[BUFFER_BYTES];
};

bool timer_pipe_wanted(char *path)
{
    const char *enabled = getenv("TORCHELASTIC_ENABLE_FILE_TIMER"), *file = getenv("TORCHELASTIC_TIMER_FILE");

    snprintf(path, PATH_BYTES, "%s", file == NULL ? "" : file);
    return (enabled != NULL && strcmp(enabled, "1") == 0) || (file != NULL && file[0] != '\0');
}

/* Expiry */

static void arm(struct timer_pipe *pipe)
{
    const int64_t next_us = timers_next_us(&pipe->timers);
    /* A time of zero disarms the timerfd, so a deadline at the first instant of the epoch gets 1 ns. */
    struct itimerspec when = { .it_value = { .tv_sec = next_us < 0 ? 0 : next_us / 1000000,
                                             .tv_nsec = next_us < 0 ? 0 : next_us % 1000000 * 1000 } };

    if (next_us >= 0 && when.it_value.tv_sec == 0 && when.it_value.tv_nsec == 0)
        when.it_value.tv_nsec = 1;
    timerfd_settime(pipe->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/*
 * Signals the process of a timer that expired. A pidfd keeps the process id from being reused between the
 * look at its parents and the signal.
 */
static void expire(struct timer_pipe *pipe, const struct timer_request *timer)
{
    const int pidfd = (int)syscall(SYS_pidfd_open, timer->pid, 0);

    if (pidfd < 0)
        return; /* the process has ended: its timers no longer matter */
    if (descendants_top(timer->pid) != 0) {
        pipe->handlers.expired(pipe->handlers.arg, timer);
        if (timer->signal > 0)
            syscall(SYS_pidfd_send_signal, pidfd, timer->signal, NULL, 0);
    }
    close(pidfd);
}

static void on_clock(uv_poll_t *poll, int status, int events)
{
    struct timer_pipe *pipe = poll->data;
    struct timer_request timer;
    uint64_t n;

    (void)status;
    (void)events;
    (void)!read(pipe->timer, &n, sizeof n);
    while (timers_pop(&pipe->timers, clock_epoch_us(), &timer))
        expire(pipe, &timer);
    arm(pipe);
}

/* Lines */

static void say(struct timer_pipe *pipe, bool *told, const char *what, const char *why)
{
    char words[512];

    if (*told)
        return; /* one line is enough: a worker that writes one such request may write a thousand */
    *told = true;
    snprintf(words, sizeof words, "%s: %.300s", what, why);
    pipe->handlers.note(pipe->handlers.arg, words);
}

static bool is_below_us(void *arg, pid_t pid)
{
    (void)arg;
    return descendants_top(pid) != 0;
}

static void take_line(struct timer_pipe *pipe, const char *line, size_t length)
{
    struct timer_request request;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    if (length == 0)
        return;
    if (timers_parse(&request, line, length, &err) != FSDP_OK) {
        say(pipe, &pipe->told_unfit, "a line in the timer file was not understood", err.message);
        return;
    }
    if (request.expires_us >= 0 && descendants_top(request.pid) == 0)
        return; /* the process has ended already, or is no descendant of ours */
    status = timers_take(&pipe->timers, &request, &err);
    if (status == FSDP_ERR_BUSY) { /* the places may be taken by timers of processes that have ended */
        timers_sieve(&pipe->timers, is_below_us, NULL);
        status = timers_take(&pipe->timers, &request, &err);
    }
    if (status != FSDP_OK)
        say(pipe, &pipe->told_full, "a watchdog timer could not be set", err.message);
}

static void take_bytes(struct timer_pipe *pipe)
{
    char *from = pipe->buffer, *end = pipe->buffer + pipe->n_buffer, *newline;

    while ((newline = memchr(from, '\n', (size_t)(end - from))) != NULL) {
        if (!pipe->overlong)
            take_line(pipe, from, (size_t)(newline - from));
        pipe->overlong = false;
        from = newline + 1;
    }
    pipe->n_buffer = (size_t)(end - from);
    memmove(pipe->buffer, from, pipe->n_buffer);
    if (pipe->n_buffer < BUFFER_BYTES)
        return;
    if (!pipe->overlong)
        say(pipe, &pipe->told_unfit, "a line in the timer file was not understood", "it has no end");
    pipe->overlong = true;
    pipe->n_buffer = 0;
}

/*
 * Reads once per wake-up, because a worker that writes without end must leave time for the rest of the loop.
 */
static void on_lines(uv_poll_t *poll, int status, int events)
{
    struct timer_pipe *pipe = poll->data;
    ssize_t n;

    (void)status;
    (void)events;
    n = read(pipe->fifo, pipe->buffer + pipe->n_buffer, BUFFER_BYTES - pipe->n_buffer);
    if (n <= 0)
        return; /* the FIFO is empty; it has no end, because this process holds a write end too */
    pipe->n_buffer += (size_t)n;
    take_bytes(pipe);
    arm(pipe);
}

/* Life */

/* May a FIFO be made at `path`? Yes if there is no file, or a FIFO without a reader, which is removed. */
static bool is_free(const char *path)
{
    struct stat info;
    int fd;

    if (lstat(path, &info) < 0)
        return errno == ENOENT;
    if (!S_ISFIFO(info.st_mode))
        return false;
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        return false;
    }
    return errno == ENXIO && unlink(path) == 0;
}

static bool make_fifo(struct timer_pipe *pipe, const char *path, const char *folder)
{
    if (path[0] != '\0' && is_free(path)) {
        snprintf(pipe->path, sizeof pipe->path, "%s", path);
        if (mkfifo(pipe->path, 0600) == 0)
            return true;
    }
    if (folder == NULL)
        folder = rundir_temporary();
    for (int i = 0; i < TRIES; i++) {
        snprintf(pipe->path, sizeof pipe->path, "%.4000s/watchdog_timer_%d_%llx", folder, (int)getpid(),
                 (unsigned long long)clock_epoch_us() + (unsigned)i);
        if (mkfifo(pipe->path, 0600) == 0)
            return true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

/*
 * Open the FIFO that was just made, and give it mode 0600 whatever the umask is. In a folder that others may
 * write to, `path` may name another file by now, which is refused. The FIFO is opened for reading and
 * writing: without a writer it would be at its end, and wake the loop for ever. Returns -1, with errno, on
 * failure.
 */
static int open_ours(const char *path)
{
    const int fd = open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;

    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode) && info.st_uid == geteuid() && fchmod(fd, 0600) == 0)
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

enum fsdp_status timer_pipe_create(struct timer_pipe **out, uv_loop_t *loop, const char *path,
                                   const char *folder, const struct timer_handlers *handlers,
                                   struct fsdp_err *err)
{
    struct timer_pipe *pipe = calloc(1, sizeof *pipe);
    enum fsdp_status status;

    *out = NULL;
    if (pipe == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the timer file");
    pipe->handlers = *handlers;
    pipe->fifo = pipe->timer = -1;
    if (!make_fifo(pipe, path, folder)) {
        status = file_fail(err, "make a FIFO at", pipe->path);
        pipe->path[0] = '\0';
        goto failed;
    }
    pipe->fifo = open_ours(pipe->path);
    pipe->timer = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (pipe->fifo < 0 || pipe->timer < 0 || uv_poll_init(loop, &pipe->lines, pipe->fifo) != 0) {
        status = file_fail(err, "open the FIFO", pipe->path);
        goto failed;
    }
    pipe->n_handles = 1;
    pipe->lines.data = pipe;
    *out = pipe;
    if (uv_poll_init(loop, &pipe->clock, pipe->timer) != 0) {
        *out = NULL;
        timer_pipe_destroy(pipe);
        return fsdp_fail(err, FSDP_ERR_IO, "watch a timer: %s", strerror(errno));
    }
    pipe->n_handles = 2;
    pipe->clock.data = pipe;
    uv_poll_start(&pipe->lines, UV_READABLE, on_lines);
    uv_poll_start(&pipe->clock, UV_READABLE, on_clock);
    return FSDP_OK;
failed:
    if (pipe->path[0] != '\0')
        unlink(pipe->path);
    if (pipe->fifo >= 0)
        close(pipe->fifo);
    if (pipe->timer >= 0)
        close(pipe->timer);
    free(pipe);
    return status;
}

static void on_closed(uv_handle_t *handle)
{
    struct timer_pipe *pipe = handle->data;

    if (--pipe->n_handles > 0)
        return;
    close(pipe->fifo);
    close(pipe->timer);
    timers_fini(&pipe->timers);
    free(pipe);
}

void timer_pipe_destroy(struct timer_pipe *pipe)
{
    const bool both = pipe != NULL && pipe->n_handles == 2;

    if (pipe == NULL)
        return;
    unlink(pipe->path);
    uv_close((uv_handle_t *)&pipe->lines, on_closed);
    if (both)
        uv_close((uv_handle_t *)&pipe->clock, on_closed);
}

const char *timer_pipe_path(const struct timer_pipe *pipe)
{
    return pipe->path;
}

void timer_pipe_reset(struct timer_pipe *pipe)
{
    if (pipe == NULL)
        return;
    timers_fini(&pipe->timers);
    arm(pipe);
}

void timer_pipe_drop(struct timer_pipe *pipe, pid_t pid)
{
    if (pipe == NULL)
        return;
    timers_drop(&pipe->timers, pid);
    arm(pipe);
}

void timer_pipe_suspended(struct timer_pipe *pipe, int64_t slept_ns)
{
    if (pipe == NULL)
        return;
    timers_shift(&pipe->timers, slept_ns / 1000);
    arm(pipe);
}
