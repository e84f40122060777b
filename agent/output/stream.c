#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/output/output_impl.h"

struct stream *stream_create(const struct stream_sink *sink, struct output *output,
                             const struct stream_spec *spec)
{
    struct stream *stream = calloc(1, sizeof *stream);

    if (stream == NULL)
        return NULL;
    stream->sink = sink;
    stream->output = output;
    stream->generation = spec->generation;
    stream->rank = spec->rank;
    stream->which = spec->which;
    stream->fd = -1;
    stream->newest = &stream->oldest;
    return stream;
}

void stream_drop_held(struct stream *stream)
{
    free(stream->held);
    stream->held = NULL;
    stream->n_held = 0;
}

void stream_drop(struct stream *stream)
{
    if (stream->source != NULL)
        console_drop(stream->source);
    stream->source = NULL;
    stream_drop_held(stream);
}

void stream_free(struct stream *stream)
{
    stream_drop(stream);
    log_filter_destroy(stream->filter);
    filtered_release(stream->filtered);
    log_file_destroy(stream->file);
    free(stream);
}

/*
 * Must the stream be kept after its end? Yes, if it is the newest stderr of a rank, whose last words may
 * still be asked for.
 */
static bool is_wanted(const struct stream *stream)
{
    if (stream->handle_open || stream->source != NULL || stream->n_held > 0 || stream->writing)
        return true;
    if (stream->output->destroyed || stream->which != RUNDIR_STDERR)
        return false;
    for (const struct stream *other = stream->next; other != NULL; other = other->next)
        if (other->rank == stream->rank && other->which == RUNDIR_STDERR)
            return false;
    return true;
}

void stream_sweep(struct output *output)
{
    for (struct stream **link = &output->streams; *link != NULL;) {
        struct stream *stream = *link;

        if (is_wanted(stream)) {
            link = &stream->next;
        } else {
            *link = stream->next;
            stream_free(stream);
        }
    }
}

void stream_add(struct stream *stream)
{
    struct stream **link = &stream->output->streams;

    while (*link != NULL)
        link = &(*link)->next;
    *link = stream;
    stream_sweep(stream->output);
}

int stream_connect(struct stream *stream, int terminal, int size_bytes, int *theirs)
{
    int ends[2], error = 0;

    *theirs = -1;
    if (terminal >= 0) {
        error = pty_open(&stream->pty, terminal);
        ends[0] = stream->pty.master;
        ends[1] = stream->pty.slave;
    } else if (pipe2(ends, O_CLOEXEC) < 0) {
        error = errno;
    }
    if (error != 0)
        return error;
    /*
     * A larger pipe means fewer wake-ups for a worker that writes much. This fails if the user's pipes have
     * used up their allowance.
     */
    if (terminal < 0 && size_bytes > 0)
        fcntl(ends[0], F_SETPIPE_SZ, size_bytes);
    /* our end becomes O_NONBLOCK, not theirs */
    error = uv_poll_init(stream->output->loop, &stream->poll, ends[0]);
    if (error != 0) {
        close(ends[0]);
        close(ends[1]);
        return -error;
    }
    stream->poll.data = stream;
    stream->handle_open = true;
    stream->output->n_open_handles++;
    stream->fd = ends[0];
    stream->is_pty = terminal >= 0;
    *theirs = ends[1];
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct stream *stream = handle->data;
    struct output *output = stream->output;

    stream->handle_open = false;
    stream_sweep(output);
    relay_check_drained(output);
    output_handle_closed(output);
}

void stream_close(struct stream *stream)
{
    if (stream->fd < 0)
        return;
    uv_close((uv_handle_t *)&stream->poll, on_closed);
    close(stream->fd);
    stream->fd = -1;
    if (stream->file != NULL)
        logs_end(stream);
}

/*
 * Reads once. Returns the number of bytes taken; 0 if there are none now. At the end of the channel, closes
 * it.
 */
static size_t read_once(struct stream *stream)
{
    struct output *output = stream->output;
    ssize_t n;

    if (stream->fd < 0)
        return 0;
    if (stream->is_pty)
        pty_resize(&stream->pty, output->relay.err_fd);
    do
        n = read(stream->fd, output->buffer, stream->sink->read_bytes);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        output->n_read += (uint64_t)n;
        stream->sink->take(stream, output->buffer, (size_t)n);
        return (size_t)n;
    }
    if (n == 0 || errno != EAGAIN || stream->ended)
        stream_close(stream); /* EIO: the other end of a pseudo-terminal is closed */
    return 0;
}

/*
 * Reads a stream. If one read does not end a line, reads on before other streams get their turn, unless the
 * writer pauses.
 */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct stream *stream = poll->data;
    const struct stream_sink *sink = stream->sink;
    struct output *output = stream->output;

    (void)status;
    (void)events;
    for (int i = 0; i < sink->n_reads && !(sink->waits && output->relay.blocked); i++) {
        const size_t n = read_once(stream);

        if (n == 0 || output->buffer[n - 1] == '\n')
            break;
    }
    relay_check_drained(output);
}

void stream_resume(struct stream *stream)
{
    uv_poll_start(&stream->poll, UV_READABLE, on_readable);
}

void stream_read_held(struct stream *stream)
{
    size_t total = 0, n;

    while (total < stream->sink->held_bytes && (n = read_once(stream)) > 0)
        total += n;
}
