#include "agent/output/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/os/sink.h"
#include "agent/output/pty.h"
#include "agent/record/last_words.h"

enum {
    READ_BYTES = 64 * 1024, /* what a pipe holds: one write of that size is read as one */
    READS_OF_A_LINE = 16,   /* in a row, of a channel that stands within a line */
    HELD_MOST = 256 * 1024, /* read of a dead worker's channel while nothing goes out */
    ENDED_MOST = 4 << 20,   /* memory of all such channels, over however many restarts */
    STALL_MS = 5000,
    RETRY_MS = 20, /* where the sink cannot be watched */
};

struct channel {
    struct relay *relay;
    struct channel *next;
    int generation, rank;
    bool shown, ended; /* `ended`: it closes where it is empty */
    bool is_pty, handle_open;
    int fd; /* ours; -1: closed, or never made */
    struct pty pty;
    uv_poll_t poll;
    char *held; /* (held_n) read, and to be written before anything else of it */
    size_t held_n;
    int error; /* why there is no channel: an errno; 0: there is one, or none was wanted */
    struct last_words words;
};

struct relay {
    uv_loop_t *loop;
    int err_fd;
    bool joins, direct, terminal;
    bool blocked; /* the sink takes nothing: no channel is read */
    bool gone;    /* nobody reads any more */
    bool within_line;
    struct sink sink;
    struct channel *channels; /* in the order they were opened */
    uv_poll_t ready;          /* of the sink */
    bool ready_open;
    uv_timer_t timer; /* RETRY_MS; STALL_MS once hurried */
    uint64_t taken, moved, moved_before, lost;
    bool hurried, destroyed;
    int n_open_handles;
    void (*drained)(void *data);
    void *drained_data;
    char buffer[READ_BYTES];
};

static void serve(struct relay *relay);
static void check_drained(struct relay *relay);

/* --- life of a channel -------------------------------------------------------------------------------------------- */

static void free_if_closed(struct relay *relay)
{
    if (!relay->destroyed || relay->n_open_handles > 0)
        return;
    sink_fini(&relay->sink);
    free(relay);
}

/* Those that are over are let go once a newer one of their rank is there: until then they may be asked about. */
static bool is_wanted(const struct channel *channel)
{
    if (channel->handle_open || channel->held_n > 0)
        return true;
    if (channel->relay->destroyed)
        return false;
    for (const struct channel *other = channel->next; other != NULL; other = other->next)
        if (other->rank == channel->rank)
            return false;
    return true;
}

static void sweep(struct relay *relay)
{
    for (struct channel **link = &relay->channels; *link != NULL;) {
        struct channel *channel = *link;

        if (is_wanted(channel)) {
            link = &channel->next;
        } else {
            *link = channel->next;
            free(channel->held);
            free(channel);
        }
    }
}

static void on_channel_closed(uv_handle_t *handle)
{
    struct channel *channel = handle->data;
    struct relay *relay = channel->relay;

    channel->handle_open = false;
    relay->n_open_handles--;
    sweep(relay);
    check_drained(relay);
    free_if_closed(relay);
}

static void close_channel(struct channel *channel)
{
    if (channel->fd < 0)
        return;
    uv_close((uv_handle_t *)&channel->poll, on_channel_closed);
    close(channel->fd);
    channel->fd = -1;
}

static void drop_held(struct channel *channel)
{
    free(channel->held);
    channel->held = NULL;
    channel->held_n = 0;
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

/* The workers shall notice what we noticed: EPIPE, or the hangup of a terminal. */
static void reader_is_gone(struct relay *relay)
{
    relay->gone = true;
    relay->blocked = false;
    for (struct channel *channel = relay->channels; channel != NULL; channel = channel->next) {
        drop_held(channel);
        if (channel->shown)
            close_channel(channel);
    }
}

/* Bytes taken of them, fewer where the sink is full for now. What cannot be written at all counts as taken. */
static size_t write_out(struct relay *relay, const char *bytes, size_t n)
{
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
            reader_is_gone(relay);
        }
    }
    return n;
}

static void hold(struct channel *channel, const char *bytes, size_t n)
{
    char *held = n > 0 ? realloc(channel->held, channel->held_n + n) : NULL;

    if (held == NULL) {
        channel->relay->lost += n;
        return;
    }
    memcpy(held + channel->held_n, bytes, n);
    channel->held = held;
    channel->held_n += n;
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

/* Nothing is read until the sink takes bytes again. */
static void block(struct relay *relay)
{
    if (relay->blocked)
        return;
    relay->blocked = true;
    for (struct channel *channel = relay->channels; channel != NULL; channel = channel->next)
        if (channel->fd >= 0)
            uv_poll_stop(&channel->poll);
    if (relay->ready_open)
        uv_poll_start(&relay->ready, UV_READABLE, on_ready); /* an epoll descriptor: it is readable */
    else if (!relay->hurried)
        uv_timer_start(&relay->timer, on_retry, RETRY_MS, RETRY_MS);
}

/* --- in ----------------------------------------------------------------------------------------------------------- */

static void take(struct channel *channel, const char *bytes, size_t n)
{
    struct relay *relay = channel->relay;
    size_t written = 0;

    last_words_add(&channel->words, bytes, n);
    if (!channel->shown || relay->gone)
        return;
    relay->taken += n;
    if (!relay->blocked)
        written = write_out(relay, bytes, n);
    if (written < n) {
        hold(channel, bytes + written, n - written);
        block(relay);
    }
}

/* One read: bytes taken, 0 when there are none for now; at its end the channel is closed. */
static size_t read_once(struct channel *channel)
{
    struct relay *relay = channel->relay;
    ssize_t n;

    if (channel->fd < 0)
        return 0;
    if (channel->is_pty)
        pty_resize(&channel->pty, relay->err_fd);
    do
        n = read(channel->fd, relay->buffer, READ_BYTES);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        take(channel, relay->buffer, (size_t)n);
        return (size_t)n;
    }
    if (n == 0 || errno != EAGAIN || channel->ended)
        close_channel(channel); /* a terminal whose other end is closed says EIO */
    return 0;
}

/* What comes in one piece and is more than one read goes out before another's, unless the writer pauses within. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct channel *channel = poll->data;
    struct relay *relay = channel->relay;
    size_t n;

    (void)status;
    (void)events;
    for (int i = 0; i < READS_OF_A_LINE && !relay->blocked; i++) {
        n = read_once(channel);
        if (n == 0 || relay->buffer[n - 1] == '\n')
            break;
    }
    check_drained(relay);
}

/* All it holds now, and no more than that: a writer that never stops must not keep us. */
static void read_held(struct channel *channel)
{
    size_t total = 0, n;

    while (total < HELD_MOST && (n = read_once(channel)) > 0)
        total += n;
}

static bool write_held(struct channel *channel)
{
    const size_t n = write_out(channel->relay, channel->held, channel->held_n);

    if (channel->held_n == 0)
        return true; /* nobody reads any more, and it was dropped */
    if (n < channel->held_n) {
        memmove(channel->held, channel->held + n, channel->held_n - n);
        channel->held_n -= n;
        return false;
    }
    drop_held(channel);
    return true;
}

/* The sink takes bytes: what is held, oldest first; then those that have ended; then all may be read again. */
static void serve(struct relay *relay)
{
    if (!relay->blocked)
        return;
    for (struct channel *channel = relay->channels; channel != NULL; channel = channel->next)
        if (channel->held_n > 0 && !write_held(channel))
            return;
    relay->blocked = false;
    if (relay->ready_open)
        uv_poll_stop(&relay->ready);
    if (!relay->hurried)
        uv_timer_stop(&relay->timer);
    for (struct channel *channel = relay->channels; channel != NULL && !relay->blocked;
         channel = channel->next)
        if (channel->ended)
            read_held(channel);
    for (struct channel *channel = relay->channels; channel != NULL && !relay->blocked;
         channel = channel->next)
        if (channel->fd >= 0)
            uv_poll_start(&channel->poll, UV_READABLE, on_readable);
    sweep(relay);
    check_drained(relay);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* The same place, where an order can be seen: what the null device swallows has none. */
static bool is_one_place(int out_fd, int err_fd)
{
    struct stat info;

    return sink_same(out_fd, err_fd) && fstat(err_fd, &info) == 0 &&
           (!S_ISCHR(info.st_mode) || isatty(err_fd) == 1);
}

enum fsdp_status relay_create(struct relay **out, uv_loop_t *loop, int out_fd, int err_fd, bool direct,
                              struct fsdp_err *err)
{
    struct relay *relay = calloc(1, sizeof *relay);

    *out = NULL;
    if (relay == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the output");
    relay->loop = loop;
    relay->err_fd = err_fd;
    relay->direct = direct;
    relay->joins = is_one_place(out_fd, err_fd);
    relay->terminal = isatty(err_fd) == 1;
    sink_init(&relay->sink, direct ? -1 : err_fd);
    uv_timer_init(loop, &relay->timer);
    relay->timer.data = relay;
    relay->n_open_handles = 1;
    if (relay->sink.ready >= 0 && uv_poll_init(loop, &relay->ready, relay->sink.ready) == 0) {
        relay->ready.data = relay;
        relay->ready_open = true;
        relay->n_open_handles++;
    }
    *out = relay;
    return FSDP_OK;
}

bool relay_joins(const struct relay *relay)
{
    return relay->joins;
}

/* Both ends; 0, or an errno with nothing open. */
static int open_ends(struct channel *channel, int *theirs)
{
    int ends[2], error;

    if (channel->shown && channel->relay->terminal) {
        error = pty_open(&channel->pty, channel->relay->err_fd);
        if (error != 0)
            return error;
        channel->is_pty = true;
        channel->fd = channel->pty.master;
        *theirs = channel->pty.slave;
        return 0;
    }
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    channel->fd = ends[0];
    *theirs = ends[1];
    return 0;
}

static int watch(struct channel *channel)
{
    struct relay *relay = channel->relay;
    int error =
        uv_poll_init(relay->loop, &channel->poll, channel->fd); /* our end is O_NONBLOCK, not theirs */

    if (error != 0) {
        close(channel->fd);
        channel->fd = -1;
        return -error;
    }
    channel->poll.data = channel;
    channel->handle_open = true;
    relay->n_open_handles++;
    error = relay->blocked ? 0 : uv_poll_start(&channel->poll, UV_READABLE, on_readable);
    if (error != 0)
        close_channel(channel);
    return -error;
}

enum fsdp_status relay_open(struct relay *relay, int generation, int rank, bool shown, int *fd,
                            struct fsdp_err *err)
{
    struct channel *channel = calloc(1, sizeof *channel), **link = &relay->channels;
    int theirs = -1;

    *fd = -1;
    if (channel == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the output");
    *channel =
        (struct channel){ .relay = relay, .generation = generation, .rank = rank, .shown = shown, .fd = -1 };
    while (*link != NULL)
        link = &(*link)->next;
    *link = channel;
    sweep(relay);
    if (relay->direct || (relay->gone && shown))
        return FSDP_OK;
    channel->error = open_ends(channel, &theirs);
    if (channel->error == 0)
        channel->error = watch(channel);
    if (channel->error != 0 && theirs >= 0) {
        close(theirs);
        theirs = -1;
    }
    *fd = theirs;
    return FSDP_OK;
}

/* --- last words --------------------------------------------------------------------------------------------------- */

/* It wrote past us: where to, and how to have it kept another time. */
static void tell_unkept(const struct channel *channel, struct errors_detail *detail)
{
    const char *where = channel->relay->terminal ? "the terminal" : "the standard error of fsdprun";
    char line[ERRORS_TAIL_BYTES];
    int n;

    detail->shown = false; /* these words, at least */
    if (channel->relay->direct)
        n = snprintf(
            line, sizeof line,
            "(not kept: --direct-output had it written to %s itself; --tee 3 or --redirects 3 keep it)",
            where);
    else
        n = snprintf(
            line, sizeof line,
            "(not kept: it was written to %s itself, as no %s could be had: %s; --tee 3 or --redirects 3 "
            "keep it)",
            where, channel->relay->terminal ? "pseudo-terminal" : "pipe", strerror(channel->error));
    errors_tail_take(&detail->tail, line, (size_t)n, false);
}

void relay_tell(struct relay *relay, int rank, bool uncaught, struct errors_detail *detail)
{
    struct channel *found = NULL;
    char bytes[LAST_WORDS_BYTES];
    size_t n;

    for (struct channel *channel = relay->channels; channel != NULL; channel = channel->next)
        if (channel->rank == rank)
            found = channel; /* the last that was opened */
    if (found == NULL)
        return;
    if (found->error != 0 || relay->direct) {
        tell_unkept(found, detail);
        return;
    }
    read_held(found);
    n = last_words_copy(&found->words, bytes);
    last_words_tell(detail, bytes, n, found->words.n > LAST_WORDS_BYTES, uncaught);
}

/* --- the end of a generation, of all ------------------------------------------------------------------------------- */

/* A reader who stands still while workers are restarted again and again costs neither descriptors nor memory without end. */
static void bound_ended(struct relay *relay)
{
    size_t total = 0;

    for (const struct channel *channel = relay->channels; channel != NULL; channel = channel->next)
        if (channel->held_n > 0)
            total += sizeof *channel + channel->held_n;
    for (struct channel *channel = relay->channels; channel != NULL && total > ENDED_MOST;
         channel = channel->next)
        if (channel->held_n > 0) {
            total -= sizeof *channel + channel->held_n;
            relay->lost += channel->held_n;
            drop_held(channel);
        }
}

void relay_end_generation(struct relay *relay)
{
    for (struct channel *channel = relay->channels; channel != NULL; channel = channel->next) {
        channel->ended = true;
        read_held(channel);
    }
    bound_ended(relay);
    sweep(relay);
}

static bool is_drained(const struct relay *relay)
{
    for (const struct channel *channel = relay->channels; channel != NULL; channel = channel->next)
        if (channel->held_n > 0 || (channel->fd >= 0 && channel->ended))
            return false;
    return true;
}

static void finish_drain(struct relay *relay)
{
    void (*done)(void *data) = relay->drained;

    if (done == NULL)
        return;
    relay->drained = NULL;
    uv_timer_stop(&relay->timer);
    done(relay->drained_data);
}

static void on_drained(uv_timer_t *timer)
{
    finish_drain(timer->data);
}

static void check_drained(struct relay *relay)
{
    if (relay->drained != NULL && !relay->destroyed && is_drained(relay))
        uv_timer_start(&relay->timer, on_drained, 0, 0);
}

/* What is left is lost once nobody has taken anything for so long. */
static void on_stalled(uv_timer_t *timer)
{
    struct relay *relay = timer->data;

    serve(relay);
    if (relay->moved != relay->moved_before) {
        relay->moved_before = relay->moved;
        return;
    }
    for (struct channel *channel = relay->channels; channel != NULL; channel = channel->next) {
        relay->lost += channel->held_n;
        drop_held(channel);
        close_channel(channel);
    }
    finish_drain(relay);
}

static void arm_hurry(struct relay *relay)
{
    relay->moved_before = relay->moved;
    uv_timer_start(&relay->timer, on_stalled, STALL_MS, STALL_MS);
}

void relay_drain(struct relay *relay, void (*done)(void *data), void *data)
{
    relay->drained = done;
    relay->drained_data = data;
    if (is_drained(relay))
        uv_timer_start(&relay->timer, on_drained, 0, 0);
    else if (relay->hurried)
        arm_hurry(relay);
}

void relay_hurry(struct relay *relay)
{
    if (relay->hurried)
        return;
    relay->hurried = true;
    if (relay->drained != NULL && !is_drained(relay))
        arm_hurry(relay);
}

void relay_resized(struct relay *relay)
{
    for (struct channel *channel = relay->channels; channel != NULL; channel = channel->next)
        if (channel->fd >= 0 && channel->is_pty)
            pty_resize(&channel->pty, relay->err_fd);
}

bool relay_within_line(const struct relay *relay)
{
    return relay->within_line;
}

uint64_t relay_taken(const struct relay *relay)
{
    return relay->taken;
}

uint64_t relay_lost(const struct relay *relay)
{
    return relay->lost;
}

static void on_closed(uv_handle_t *handle)
{
    struct relay *relay = handle->data;

    relay->n_open_handles--;
    free_if_closed(relay);
}

void relay_destroy(struct relay *relay)
{
    if (relay == NULL)
        return;
    relay->destroyed = true;
    for (struct channel *channel = relay->channels; channel != NULL; channel = channel->next) {
        drop_held(channel);
        close_channel(channel);
    }
    sweep(relay);
    if (relay->ready_open)
        uv_close((uv_handle_t *)&relay->ready, on_closed);
    uv_close((uv_handle_t *)&relay->timer, on_closed);
}
