#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/os/deadlines.h"
#include "agent/output/output_impl.h"

enum {
    READ_BYTES = 64 * 1024, /* as much as a pipe holds, so one full write of a worker is read at once */
    READS_OF_A_LINE = 16,
    /* the most bytes read from a dead worker's channel while nothing can be written */
    HELD_MOST = 256 * 1024,
    ENDED_MOST = 4 << 20, /* the most memory for all such bytes, over any number of restarts */
    RETRY_MS = 20,
};

static void serve(struct output *output);

static void give_up_held(struct stream *stream)
{
    stream->output->relay.lost += stream->n_held;
    stream_drop_held(stream);
}

/*
 * The reader of our stderr is gone: close the channels, so that workers get EPIPE, or the hangup of a
 * terminal, as we did.
 */
static void reader_is_gone(struct output *output)
{
    output->relay.gone = true;
    output->relay.blocked = false;
    for (struct stream *stream = output->streams; stream != NULL; stream = stream->next) {
        stream_drop_held(stream);
        if (stream->shown)
            stream_close(stream);
    }
}

/*
 * Write as much as the sink takes now and return how much. Bytes that cannot be written at all count as
 * taken.
 */
static size_t write_out(struct output *output, const char *bytes, size_t n)
{
    struct relay *relay = &output->relay;
    size_t at = 0;

    while (at < n && !relay->gone) {
        const enum sink_kind kind = relay->sink.kind;
        const ssize_t taken = sink_write(&relay->sink, bytes + at, n - at);

        if (taken > 0) {
            at += (size_t)taken;
            relay->moved += (uint64_t)taken;
            relay->within_line = bytes[at - 1] != '\n';
        } else if (taken == 0) {
            return at;
        } else if (kind == SINK_FILE && errno != EPIPE) {
            relay->sink.kind = kind; /* a full disk may have room again */
            relay->lost += n - at;
            return n;
        } else {
            reader_is_gone(output);
        }
    }
    return n;
}

static void hold(struct stream *stream, const char *bytes, size_t n)
{
    char *held = realloc(stream->held, stream->n_held + n);

    if (held == NULL) {
        stream->output->relay.lost += n;
        return;
    }
    memcpy(held + stream->n_held, bytes, n);
    stream->held = held;
    stream->n_held += n;
}

static void on_retry(uv_timer_t *timer)
{
    serve(timer->data);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    serve(poll->data);
}

/* No inherited stream is read until the sink takes bytes again. */
static void block(struct output *output)
{
    struct relay *relay = &output->relay;

    if (relay->blocked)
        return;
    relay->blocked = true;
    for (struct stream *stream = output->streams; stream != NULL; stream = stream->next)
        if (stream->sink->waits && stream->fd >= 0)
            uv_poll_stop(&stream->poll);
    if (relay->ready_open)
        uv_poll_start(&relay->ready, UV_READABLE, on_ready); /* an epoll descriptor: it becomes readable */
    else if (!relay->hurried)
        uv_timer_start(&relay->timer, on_retry, RETRY_MS, RETRY_MS);
}

static void pass_on(struct stream *stream, const char *bytes, size_t n)
{
    struct output *output = stream->output;
    size_t written = 0;

    last_words_add(&stream->words, bytes, n);
    if (!stream->shown || output->relay.gone)
        return;
    output->taken += n;
    if (!output->relay.blocked)
        written = write_out(output, bytes, n);
    if (written < n) {
        hold(stream, bytes + written, n - written);
        block(output);
    }
}

/* Write the bytes that wait. Returns false if the sink is full again. */
static bool write_held(struct stream *stream)
{
    const size_t n = write_out(stream->output, stream->held, stream->n_held);

    if (n < stream->n_held) {
        memmove(stream->held, stream->held + n, stream->n_held - n);
        stream->n_held -= n;
        return false;
    }
    stream_drop_held(stream);
    return true;
}

/*
 * The sink may take bytes again:
 *   1. Write what is held, oldest stream first. Stop as soon as the sink is full again.
 *   2. Read the channels of generations that have ended. This may fill the sink again.
 *   3. Watch all other channels again.
 */
static void serve(struct output *output)
{
    struct relay *relay = &output->relay;
    struct stream *stream;

    if (!relay->blocked)
        return;
    for (stream = output->streams; stream != NULL; stream = stream->next)
        if (stream->n_held > 0 && !write_held(stream))
            return;
    relay->blocked = false;
    if (relay->ready_open)
        uv_poll_stop(&relay->ready);
    if (!relay->hurried)
        uv_timer_stop(&relay->timer);
    for (stream = output->streams; stream != NULL && !relay->blocked; stream = stream->next)
        if (stream->ended)
            stream_read_held(stream);
    for (stream = output->streams; stream != NULL && !relay->blocked; stream = stream->next)
        if (stream->sink->waits && stream->fd >= 0)
            stream_resume(stream);
    stream_sweep(output);
    relay_check_drained(output);
}

/*
 * Return the line for a worker that wrote to our stderr directly: where its output went, and how to have it
 * kept next time.
 */
static size_t tell_unkept(const struct stream *stream, char bytes[LAST_WORDS_BYTES])
{
    const struct relay *relay = &stream->output->relay;
    const char *where = relay->terminal ? "the terminal" : "the standard error of fsdprun";

    if (relay->direct)
        return (size_t)snprintf(
            bytes, LAST_WORDS_BYTES,
            "(not kept: --direct-output had it written to %s itself; --tee 3 or --redirects 3 keep it)",
            where);
    return (size_t)snprintf(bytes, LAST_WORDS_BYTES,
                            "(not kept: it was written to %s itself, as no %s could be had: %s; --tee 3 or "
                            "--redirects 3 keep it)",
                            where, relay->terminal ? "pseudo-terminal" : "pipe", strerror(stream->error));
}

static size_t copy_last_words(struct stream *stream, char bytes[LAST_WORDS_BYTES], bool *cut,
                              struct errors_detail *detail)
{
    if (stream->error != 0 || stream->output->relay.direct) {
        detail->shown = false; /* at least this line was not */
        return tell_unkept(stream, bytes);
    }
    *cut = stream->words.n > LAST_WORDS_BYTES;
    return last_words_copy(&stream->words, bytes);
}

const struct stream_sink relay_sink = {
    .read_bytes = READ_BYTES,
    .held_bytes = HELD_MOST,
    .n_reads = READS_OF_A_LINE,
    .waits = true,
    .take = pass_on,
    .tail = copy_last_words,
};

/*
 * Do both descriptors lead to one place, in which the order of writes is visible? In the null device it is
 * not.
 */
static bool is_one_place(int out_fd, int err_fd)
{
    struct stat info;

    return sink_same(out_fd, err_fd) && fstat(err_fd, &info) == 0 &&
           (!S_ISCHR(info.st_mode) || isatty(err_fd) == 1);
}

void relay_init(struct output *output, const struct output_spec *spec)
{
    struct relay *relay = &output->relay;

    relay->err_fd = spec->err_fd;
    relay->direct = spec->direct;
    relay->joins = is_one_place(spec->out_fd, spec->err_fd);
    relay->terminal = isatty(spec->err_fd) == 1;
    sink_init(&relay->sink, spec->relays && !spec->direct ? spec->err_fd : -1);
    uv_timer_init(output->loop, &relay->timer);
    relay->timer.data = output;
    output->n_open_handles++;
    relay->ready_open =
        relay->sink.ready >= 0 && uv_poll_init(output->loop, &relay->ready, relay->sink.ready) == 0;
    if (relay->ready_open) {
        relay->ready.data = output;
        output->n_open_handles++;
    }
}

bool output_joins(const struct output *output)
{
    return output->relay.joins;
}

enum fsdp_status relay_open(struct output *output, const struct stream_spec *spec, int *fd,
                            struct fsdp_err *err)
{
    struct stream *stream = stream_create(&relay_sink, output, spec);
    const struct relay *relay = &output->relay;

    if (stream == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the output");
    stream->shown = spec->mode == OUTPUT_INHERIT;
    stream_add(stream);
    if (relay->direct || (relay->gone && stream->shown))
        return FSDP_OK;
    stream->error = stream_connect(stream, stream->shown && relay->terminal ? relay->err_fd : -1, 0, fd);
    if (stream->error == 0 && !relay->blocked)
        stream_resume(stream);
    return FSDP_OK;
}

void relay_bound(struct output *output)
{
    size_t total = 0;
    struct stream *stream;

    for (stream = output->streams; stream != NULL; stream = stream->next)
        if (stream->n_held > 0)
            total += sizeof *stream + stream->n_held;
    for (stream = output->streams; stream != NULL && total > ENDED_MOST; stream = stream->next)
        if (stream->n_held > 0) {
            total -= sizeof *stream + stream->n_held;
            give_up_held(stream);
        }
}

static bool is_drained(const struct output *output)
{
    for (struct stream *stream = output->streams; stream != NULL; stream = stream->next)
        if (stream->n_held > 0 || (stream->fd >= 0 && stream->ended))
            return false;
    return true;
}

static void finish_drain(struct output *output)
{
    struct relay *relay = &output->relay;

    if (!relay->draining)
        return;
    relay->draining = false;
    uv_timer_stop(&relay->timer);
    if (relay->lost > 0)
        console_say(output->logs.console, "fsdprun: %" PRIu64 " bytes of output could not be written",
                    relay->lost);
    output->drained(output->drained_data);
}

static void on_drained(uv_timer_t *timer)
{
    finish_drain(timer->data);
}

void relay_check_drained(struct output *output)
{
    if (output->relay.draining && !output->destroyed && is_drained(output))
        uv_timer_start(&output->relay.timer, on_drained, 0, 0);
}

/*
 * Called every OUTPUT_STALL_MS of a hurried drain. If nothing was written since the last call, gives up the
 * rest.
 */
static void on_stalled(uv_timer_t *timer)
{
    struct output *output = timer->data;
    struct relay *relay = &output->relay;

    serve(output);
    if (relay->moved != relay->moved_before) {
        relay->moved_before = relay->moved;
        return;
    }
    for (struct stream *stream = output->streams; stream != NULL; stream = stream->next) {
        give_up_held(stream);
        stream_close(stream);
    }
    finish_drain(output);
}

/* Start the timer of on_stalled(), if the drain has begun, is hurried and is not over. */
static void limit_drain(struct output *output)
{
    struct relay *relay = &output->relay;

    if (!relay->draining || !relay->hurried || is_drained(output))
        return;
    relay->moved_before = relay->moved;
    uv_timer_start(&relay->timer, on_stalled, OUTPUT_STALL_MS, OUTPUT_STALL_MS);
}

void relay_drain(struct output *output)
{
    output->relay.draining = true;
    relay_check_drained(output);
    limit_drain(output);
}

void output_hurry(struct output *output)
{
    if (output->relay.hurried)
        return;
    output->relay.hurried = true;
    limit_drain(output);
}

void output_resized(struct output *output)
{
    for (struct stream *stream = output->streams; stream != NULL; stream = stream->next)
        if (stream->fd >= 0 && stream->is_pty)
            pty_resize(&stream->pty, output->relay.err_fd);
}

bool output_within_line(const struct output *output)
{
    return output->relay.within_line;
}

static void on_closed(uv_handle_t *handle)
{
    output_handle_closed(handle->data);
}

void relay_close(struct output *output)
{
    if (output->relay.ready_open)
        uv_close((uv_handle_t *)&output->relay.ready, on_closed);
    uv_close((uv_handle_t *)&output->relay.timer, on_closed);
}

void relay_fini(struct relay *relay)
{
    sink_fini(&relay->sink);
}
