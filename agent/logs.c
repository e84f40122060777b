#include "agent/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, PIPE_BYTES = 256 * 1024, STALL_MS = 5000, TERMINAL_MS = 10000 };

struct stream {
    struct logs *logs;
    struct stream *next;
    int generation, rank;
    enum rundir_stream which;
    uv_poll_t poll;
    int pipe_fd; /* read end; -1 once closed */
    int log_fd;  /* kept for the tail and the console */
    uint64_t start, size;
    uint64_t lost_now;             /* bytes the file did not take since it last took some */
    struct console_source *source; /* NULL: not shown, or all of it is */
    bool polling, handle_open;
    char path[RUNDIR_PATH_BYTES];
};

struct logs {
    uv_loop_t *loop;
    struct rundir *rundir;
    struct console *console;
    struct stream *streams;
    uint64_t captured, lost;
    bool said_full; /* that a file takes nothing, since all last did */
    bool destroyed;
    int n_open_handles;
    void (*drained)(void *data);
    void *drained_data;
    uv_timer_t timer; /* calls `drained` from the loop where there is no console */
    char buffer[READ_BYTES];
};

enum fsdp_status logs_create(struct logs **out, uv_loop_t *loop, struct rundir *rundir,
                             struct console *console, struct fsdp_err *err)
{
    struct logs *logs = calloc(1, sizeof *logs);

    *out = NULL;
    if (logs == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the logs");
    signal(SIGXFSZ, SIG_IGN);
    logs->loop = loop;
    logs->rundir = rundir;
    logs->console = console;
    uv_timer_init(loop, &logs->timer);
    logs->timer.data = logs;
    logs->n_open_handles = 1;
    *out = logs;
    return FSDP_OK;
}

/* --- life of a stream --------------------------------------------------------------------------------------------- */

static void free_if_closed(struct logs *logs)
{
    if (logs->destroyed && logs->n_open_handles == 0)
        free(logs);
}

static void free_stream(struct stream *stream)
{
    if (stream->log_fd >= 0)
        close(stream->log_fd);
    free(stream);
}

/* The newest generation of a rank's stderr is kept for its last lines; what else is over is let go. */
static bool is_wanted(const struct stream *stream)
{
    if (stream->handle_open || stream->source != NULL)
        return true;
    if (stream->logs->destroyed || stream->which != RUNDIR_STDERR)
        return false;
    for (const struct stream *other = stream->logs->streams; other != NULL; other = other->next)
        if (other->rank == stream->rank && other->which == RUNDIR_STDERR &&
            other->generation > stream->generation)
            return false;
    return true;
}

static void sweep(struct logs *logs)
{
    for (struct stream **link = &logs->streams; *link != NULL;) {
        struct stream *stream = *link;

        if (is_wanted(stream)) {
            link = &stream->next;
        } else {
            *link = stream->next;
            free_stream(stream);
        }
    }
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct stream *stream = handle->data;
    struct logs *logs = stream->logs;

    stream->handle_open = false;
    logs->n_open_handles--;
    sweep(logs);
    free_if_closed(logs);
}

static void on_shown(void *data)
{
    struct stream *stream = data;

    stream->source = NULL;
    sweep(stream->logs);
}

/* The pipe is at its end: the console may show what is left and be done. */
static void end_stream(struct stream *stream)
{
    if (stream->pipe_fd < 0)
        return;
    uv_close((uv_handle_t *)&stream->poll, on_poll_closed);
    close(stream->pipe_fd);
    stream->pipe_fd = -1;
    if (stream->source != NULL)
        console_end(stream->source);
}

/* --- from the pipe into the file ---------------------------------------------------------------------------------- */

static size_t write_some(int fd, const char *bytes, size_t n, int *error)
{
    size_t done = 0;

    *error = 0;
    while (done < n) {
        const ssize_t now = write(fd, bytes + done, n - done);

        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0) {
            *error = errno;
            break;
        }
        done += (size_t)now;
    }
    return done;
}

static void lose(struct stream *stream, size_t n, int error)
{
    struct logs *logs = stream->logs;

    stream->lost_now += n;
    logs->lost += n;
    if (logs->said_full)
        return;
    logs->said_full = true;
    console_say(logs->console,
                "fsdprun: cannot write %s: %s; output goes on being read, what does not fit is lost",
                stream->path, strerror(error));
}

/* The file takes bytes again: say in it what is missing. */
static bool close_gap(struct stream *stream)
{
    char line[128];
    int n = snprintf(line, sizeof line, "\n[fsdprun: %" PRIu64 " bytes were lost here]\n", stream->lost_now),
        error;
    const size_t done = write_some(stream->log_fd, line, (size_t)n, &error);

    stream->size += done;
    if (done < (size_t)n)
        return false;
    stream->lost_now = 0;
    stream->logs->said_full = false;
    return true;
}

static void store(struct stream *stream, const char *bytes, size_t n)
{
    size_t done = 0;
    int error = ENOSPC;

    stream->logs->captured += n;
    if (stream->lost_now == 0 || close_gap(stream))
        done = write_some(stream->log_fd, bytes, n, &error);
    stream->size += done;
    if (done < n)
        lose(stream, n - done, error);
    if (stream->source != NULL)
        console_grew(stream->source, stream->size);
}

/* One read. False when there is nothing more for now; a stream at its end is ended. */
static bool read_once(struct stream *stream)
{
    ssize_t n;

    if (stream->pipe_fd < 0)
        return false;
    do
        n = read(stream->pipe_fd, stream->logs->buffer, READ_BYTES);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        store(stream, stream->logs->buffer, (size_t)n);
        return true;
    }
    if (n == 0 || errno != EAGAIN)
        end_stream(stream);
    return false;
}

/* What the pipe holds now, and no more than a pipe can hold: a writer that never stops must not keep us. */
static void read_held(struct stream *stream)
{
    const uint64_t limit = stream->logs->captured + 4 * PIPE_BYTES;

    while (stream->logs->captured < limit && read_once(stream))
        continue;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    read_once(poll->data);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Where no logs are kept: a buffer without a name. */
static enum fsdp_status open_nameless(int *fd, char *path, struct fsdp_err *err)
{
    const char *dir = getenv("TMPDIR");

    if (dir == NULL || dir[0] == '\0')
        dir = "/tmp";
    snprintf(path, RUNDIR_PATH_BYTES, "a file that is not kept");
    *fd = open(dir, O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    if (*fd < 0) {
        char name[RUNDIR_PATH_BYTES];
        const int n = snprintf(name, sizeof name, "%s/fsdprun_XXXXXX", dir);

        *fd = n < (int)sizeof name ? mkostemp(name, O_APPEND | O_CLOEXEC) : -1;
        if (*fd >= 0)
            unlink(name);
    }
    return *fd >= 0 ? FSDP_OK
                    : fsdp_fail(err, FSDP_ERR_IO, "a temporary file in %s: %s", dir, strerror(errno));
}

static enum fsdp_status open_file(struct stream *stream, const struct logs_spec *spec, struct fsdp_err *err)
{
    struct rundir *rundir = stream->logs->rundir;
    struct stat stat;
    enum fsdp_status status = rundir == NULL
                                  ? open_nameless(&stream->log_fd, stream->path, err)
                                  : rundir_open_log(rundir, spec->generation, spec->rank, spec->local_rank,
                                                    spec->stream, &stream->log_fd, stream->path, err);

    if (status != FSDP_OK)
        return status;
    if (fstat(stream->log_fd, &stat) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "stat %s: %s", stream->path, strerror(errno));
    stream->start = stream->size = (uint64_t)stat.st_size;
    return FSDP_OK;
}

static enum fsdp_status show(struct stream *stream, const struct logs_spec *spec, struct fsdp_err *err)
{
    const struct console_source_spec source = {
        .fd = stream->log_fd,
        .offset = stream->size,
        .path = stream->path,
        .prefix = spec->prefix,
        .sink = spec->stream == RUNDIR_STDOUT ? CONSOLE_OUT : CONSOLE_ERR,
        .shown = on_shown,
        .data = stream,
    };

    return console_add(stream->logs->console, &stream->source, &source, err);
}

static enum fsdp_status open_pipe(struct stream *stream, int *write_fd, struct fsdp_err *err)
{
    int pipe_fds[2], error;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "pipe: %s", strerror(errno));
    /* Fewer wake-ups for a worker that writes much. A user's pipes may have used up their allowance: then not. */
    fcntl(pipe_fds[0], F_SETPIPE_SZ, PIPE_BYTES);
    error = uv_poll_init(stream->logs->loop, &stream->poll,
                         pipe_fds[0]); /* makes our end O_NONBLOCK, not theirs */
    if (error == 0) {
        stream->poll.data = stream;
        stream->handle_open = true;
        stream->logs->n_open_handles++;
        stream->pipe_fd = pipe_fds[0];
        *write_fd = pipe_fds[1];
        error = uv_poll_start(&stream->poll, UV_READABLE, on_readable);
        if (error == 0)
            return FSDP_OK;
        *write_fd = -1;
    } else {
        close(pipe_fds[0]);
    }
    close(pipe_fds[1]);
    return fsdp_fail(err, FSDP_ERR_IO, "watching a pipe: %s", uv_strerror(error));
}

enum fsdp_status logs_open(struct logs *logs, const struct logs_spec *spec, int *fd, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct stream *stream;

    *fd = -1;
    if (spec->mode == LOGS_INHERIT)
        return FSDP_OK;
    stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a log");
    stream->logs = logs;
    stream->generation = spec->generation;
    stream->rank = spec->rank;
    stream->which = spec->stream;
    stream->pipe_fd = stream->log_fd = -1;
    status = open_file(stream, spec, err);
    if (status == FSDP_OK && spec->mode == LOGS_TEE && logs->console != NULL)
        status = show(stream, spec, err);
    if (status == FSDP_OK)
        status = open_pipe(stream, fd, err);
    if (status != FSDP_OK) {
        if (stream->source != NULL)
            console_drop(stream->source);
        stream->source = NULL;
        if (!stream->handle_open) {
            free_stream(stream);
            return status;
        }
    }
    stream->next = logs->streams;
    logs->streams = stream;
    if (status != FSDP_OK)
        end_stream(stream); /* its close callback lets it go */
    return status;
}

/* --- the end of a rank, of a generation, of all ------------------------------------------------------------------- */

bool logs_stderr_tail(struct logs *logs, int rank, struct errors_tail *tail)
{
    struct stream *found = NULL;

    tail->n_lines = 0;
    for (struct stream *stream = logs->streams; stream != NULL; stream = stream->next)
        if (stream->rank == rank && stream->which == RUNDIR_STDERR &&
            (found == NULL || stream->generation > found->generation))
            found = stream;
    if (found == NULL)
        return false;
    read_held(found);
    return errors_tail_read(tail, found->log_fd, (int64_t)found->start, NULL) == FSDP_OK;
}

void logs_end_generation(struct logs *logs)
{
    for (struct stream *stream = logs->streams; stream != NULL; stream = stream->next) {
        read_held(stream);
        end_stream(stream);
    }
    sweep(logs);
}

static void on_console_drained(uint64_t left, void *data)
{
    struct logs *logs = data;

    if (left > 0)
        console_say(logs->console, "fsdprun: %" PRIu64 " bytes of output were not shown%s%s", left,
                    logs->rundir != NULL ? "; all of it is in " : "",
                    logs->rundir != NULL ? rundir_path(logs->rundir) : "");
    if (logs->lost > 0)
        console_say(logs->console,
                    "fsdprun: %" PRIu64 " bytes of output were lost: a log file could not be written",
                    logs->lost);
    logs->drained(logs->drained_data);
}

static void on_timer(uv_timer_t *timer)
{
    on_console_drained(0, timer->data);
}

void logs_drain(struct logs *logs, void (*done)(void *data), void *data)
{
    logs->drained = done;
    logs->drained_data = data;
    if (logs->console != NULL)
        console_drain(logs->console, STALL_MS, TERMINAL_MS, on_console_drained, logs);
    else
        uv_timer_start(&logs->timer, on_timer, 0, 0);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct logs *logs = handle->data;

    logs->n_open_handles--;
    free_if_closed(logs);
}

void logs_destroy(struct logs *logs)
{
    if (logs == NULL)
        return;
    for (struct stream *stream = logs->streams; stream != NULL; stream = stream->next) {
        if (stream->source != NULL)
            console_drop(stream->source);
        stream->source = NULL;
        end_stream(stream);
    }
    logs->destroyed = true;
    sweep(logs);
    uv_close((uv_handle_t *)&logs->timer, on_timer_closed);
}

uint64_t logs_captured(const struct logs *logs)
{
    return logs->captured;
}

uint64_t logs_lost(const struct logs *logs)
{
    return logs->lost;
}

/* --- prefixes ----------------------------------------------------------------------------------------------------- */

static bool name_value(const char *name, size_t length, const struct logs_names *names, char value[300])
{
    const struct {
        const char *name;
        const char *text;
        int number;
    } known[] = {
        { "rank", NULL, names->rank },
        { "local_rank", NULL, names->local_rank },
        { "generation", NULL, names->generation },
        { "role_name", names->role_name != NULL ? names->role_name : "default", 0 },
        { "host", names->host != NULL ? names->host : "", 0 },
        { "stream", names->stream == RUNDIR_STDOUT ? "stdout" : "stderr", 0 },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != length || strncmp(known[i].name, name, length) != 0)
            continue;
        if (known[i].text != NULL)
            snprintf(value, 300, "%s", known[i].text);
        else
            snprintf(value, 300, "%d", known[i].number);
        return true;
    }
    return false;
}

const char *logs_prefix(char *out, size_t size, const char *template, const struct logs_names *names)
{
    const char *at = template != NULL ? template : "[rank ${rank}]: ";
    size_t end = 0;

    while (*at != '\0' && end + 1 < size) {
        const char *close = at[0] == '$' && at[1] == '{' ? strchr(at, '}') : NULL;
        char value[300];

        if (close != NULL && name_value(at + 2, (size_t)(close - at) - 2, names, value)) {
            for (const char *v = value; *v != '\0' && end + 1 < size; v++)
                out[end++] = *v;
            at = close + 1;
        } else {
            out[end++] = *at++;
        }
    }
    if (size > 0)
        out[end] = '\0';
    return out;
}
