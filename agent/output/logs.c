#include "agent/output/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/output/logs_impl.h"
#include "agent/record/last_words.h"
#include "shard_runtime/shardfile/io_beneath.h"

enum { PIPE_BYTES = 256 * 1024, STALL_MS = 5000, TERMINAL_MS = 10000, HELD_LEAST = 8, HELD_MOST = 4096 };

/* A quarter of the descriptors may be rotated files that the console has yet to show. */
static size_t held_most(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur / 4 < HELD_LEAST)
        return HELD_LEAST;
    return limit.rlim_cur / 4 > HELD_MOST ? HELD_MOST : (size_t)(limit.rlim_cur / 4);
}

enum fsdp_status logs_create(struct logs **out, uv_loop_t *loop, struct rundir *rundir,
                             struct console *console, const struct logs_rotation *rotation,
                             struct fsdp_err *err)
{
    struct logs *logs = calloc(1, sizeof *logs);

    *out = NULL;
    /* Its own: files are closed by callbacks, when the run directory may be gone. */
    if (logs != NULL && rundir != NULL)
        logs->io = io_beneath_create(rundir_path(rundir), rundir_fd(rundir));
    if (logs == NULL || (rundir != NULL && logs->io == NULL)) {
        free(logs);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the logs");
    }
    signal(SIGXFSZ, SIG_IGN);
    logs->loop = loop;
    logs->rundir = rundir;
    logs->console = console;
    logs->rotation = *rotation;
    logs->n_held_most = held_most();
    logs->filtered[0].fd = logs->filtered[1].fd = -1;
    uv_timer_init(loop, &logs->timer);
    logs->timer.data = logs;
    logs->n_open_handles = 1;
    *out = logs;
    return FSDP_OK;
}

/* --- life of a stream --------------------------------------------------------------------------------------------- */

static void free_if_closed(struct logs *logs)
{
    if (!logs->destroyed || logs->n_open_handles > 0)
        return;
    filtered_close(logs);
    io_beneath_destroy(logs->io);
    free(logs);
}

static void free_stream(struct stream *stream)
{
    log_filter_destroy(stream->filter);
    log_file_destroy(stream->file);
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
    filtered_end(stream);
    if (stream->source != NULL)
        console_end(stream->source);
}

/* --- from the pipe into the file ---------------------------------------------------------------------------------- */

static void say_lost(struct stream *stream, const struct log_file_result *result)
{
    struct logs *logs = stream->logs;

    logs->lost += result->lost;
    if (logs->said_full)
        return;
    logs->said_full = true;
    console_say(logs->console,
                "fsdprun: cannot write %s: %s; output goes on being read, what does not fit is lost",
                stream->path, strerror(result->error));
}

/*
 * No file has these bytes, so that the console cannot copy them from there. They are shown as lines of our own: on stderr,
 * and as far as its queue has room.
 */
static void show_lost(const struct stream *stream, const char *bytes, size_t n)
{
    while (n > 0) {
        const char *newline = memchr(bytes, '\n', n);
        const size_t length = newline != NULL ? (size_t)(newline - bytes) : n;

        console_say(stream->logs->console, "%s%.*s", stream->prefix, (int)length, bytes);
        bytes += length + (newline != NULL);
        n -= length + (newline != NULL);
    }
}

static void say_unrotated(struct stream *stream, int error)
{
    if (stream->said_unrotated)
        return;
    stream->said_unrotated = true;
    console_say(stream->logs->console, "fsdprun: cannot rotate %s: %s; it goes on growing", stream->path,
                strerror(error));
}

static size_t count_held(const struct logs *logs)
{
    size_t n = 0;

    for (const struct stream *stream = logs->streams; stream != NULL; stream = stream->next)
        n += log_file_n_held(stream->file);
    return n;
}

/* Let go of rotated files: of those the console has taken all of, and of the oldest where too many are held. */
static void let_go(struct stream *stream)
{
    struct log_file *file = stream->file;
    size_t n_held;

    log_file_release(file, stream->source != NULL ? console_taken(stream->source) : log_file_end(file));
    for (n_held = count_held(stream->logs); n_held > stream->logs->n_held_most && log_file_n_held(file) > 1;
         n_held--) {
        const uint64_t end = log_file_oldest_end(file);

        log_file_release(file, end);
        if (stream->source != NULL)
            console_skip(stream->source, end);
    }
}

static void store(struct stream *stream, const char *bytes, size_t n)
{
    struct log_file_result result;

    stream->logs->captured += n;
    result = log_file_append(stream->file, bytes, n);
    if (result.lost > 0) {
        say_lost(stream, &result);
        if (stream->source != NULL)
            show_lost(stream, bytes + n - result.lost, (size_t)result.lost);
    } else if (result.gap_ended) {
        stream->logs->said_full = false;
    }
    if (result.lost == 0 && result.error != 0)
        say_unrotated(stream, result.error);
    if (stream->source != NULL)
        console_grew(stream->source, log_file_end(stream->file));
    log_file_settle(stream->file);
    if (result.rotated)
        let_go(stream);
    if (stream->filter != NULL)
        log_filter_feed(stream->filter, bytes, n);
}

/* One read. False when there is nothing more for now; a stream at its end is ended. */
static bool read_once(struct stream *stream)
{
    ssize_t n;

    if (stream->pipe_fd < 0)
        return false;
    do
        n = read(stream->pipe_fd, stream->logs->buffer, LOGS_READ_BYTES);
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
    const char *dir = rundir_temporary();

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
    struct logs *logs = stream->logs;
    struct log_file_spec file = { .fd = -1,
                                  .limit_bytes = logs->rotation.limit_bytes,
                                  .n_rotated = logs->rotation.n_rotated,
                                  .io = logs->rundir == NULL ? &io_posix : logs->io };
    enum fsdp_status status =
        logs->rundir == NULL ? open_nameless(&file.fd, stream->path, err)
                             : rundir_open_log(logs->rundir, spec->generation, spec->rank, spec->local_rank,
                                               spec->stream, &file.fd, stream->path, err);

    if (status != FSDP_OK)
        return status;
    file.path = logs->rundir == NULL ? NULL : stream->path;
    status = log_file_create(&stream->file, &file, err);
    if (status != FSDP_OK)
        close(file.fd);
    return status;
}

static const char *look_at_log(void *data, uint64_t offset, char *room, size_t want, size_t *n)
{
    const struct stream *stream = data;

    return log_file_look(stream->file, offset, room, want, n);
}

static enum fsdp_status show(struct stream *stream, const struct logs_spec *spec, struct fsdp_err *err)
{
    const struct console_source_spec source = {
        .look = look_at_log,
        .offset = log_file_end(stream->file),
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
    stream->pipe_fd = -1;
    snprintf(stream->prefix, sizeof stream->prefix, "%s", spec->prefix != NULL ? spec->prefix : "");
    status = open_file(stream, spec, err);
    if (status == FSDP_OK && spec->mode == LOGS_TEE && logs->console != NULL)
        status = show(stream, spec, err);
    if (status == FSDP_OK && spec->filters != NULL && spec->filters[0] != NULL && logs->rundir != NULL)
        status = filtered_begin(stream, spec->filters, err);
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

bool logs_tell(struct logs *logs, int rank, bool uncaught, struct errors_detail *detail)
{
    struct stream *found = NULL;
    char room[LAST_WORDS_BYTES];
    const char *bytes;
    uint64_t from, end;
    size_t n;

    for (struct stream *stream = logs->streams; stream != NULL; stream = stream->next)
        if (stream->rank == rank && stream->which == RUNDIR_STDERR &&
            (found == NULL || stream->generation > found->generation))
            found = stream;
    if (found == NULL)
        return false;
    read_held(found);
    if (logs->rundir != NULL)
        snprintf(detail->log, sizeof detail->log, "%s", found->path);
    from = log_file_begin(found->file);
    end = log_file_end(found->file);
    if (end - from > sizeof room)
        from = end - sizeof room;
    /* Of a file that was just rotated, the one before counts too. */
    bytes = log_file_look(found->file, from, room, (size_t)(end - from), &n);
    last_words_tell(detail, bytes, n, from > log_file_begin(found->file), uncaught);
    return true;
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
    /* Of files that were rotated some may be gone. */
    const char *where = logs->rundir == NULL             ? ""
                        : logs->rotation.limit_bytes > 0 ? "; what is kept of it is in "
                                                         : "; all of it is in ";

    if (left > 0)
        console_say(logs->console, "fsdprun: %" PRIu64 " bytes of output were not shown%s%s", left, where,
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
