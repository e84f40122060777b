#include "agent/console.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/line_cut.h"
#include "agent/sink.h"

enum {
    PREFIX_BYTES = 256,
    PATH_BYTES = 4096,
    STATUS_BYTES = 1024,
    SAY_BYTES = 65536,     /* queue of our own lines */
    SAY_LINE_BYTES = 8192, /* one of them */
    LOOK_BYTES = CONSOLE_LINE_BYTES + 1,
    SEARCH_LOOKS = 16, /* a long line's end is searched for in so many reads a turn: 1 MiB */
    LINE_ROOM = PREFIX_BYTES + CONSOLE_LINE_BYTES + PATH_BYTES + 128,
    BATCH_BYTES = SAY_BYTES + 2 * LINE_ROOM + 2 * STATUS_BYTES,
};

static const char clear_line[] = "\r\033[K";

struct outlet { /* a sink, the batch on its way into it, and its place in the loop */
    struct console *console;
    struct sink sink;
    union {
        uv_handle_t handle;
        uv_poll_t poll;
        uv_idle_t idle;
    } uv;
    bool armed, polled;
    size_t start, end; /* what of `batch` is still to be written */
    uint64_t taken;    /* bytes the sink took so far */
    struct console_source *turn; /* whose turn it is; NULL: the list's first */
    char *batch;
};

struct console_source {
    struct console *console;
    struct console_source *next, *previous;
    struct outlet *outlet;
    int fd;
    uint64_t size;     /* of the file */
    uint64_t cursor;   /* start of the first line not taken yet */
    uint64_t searched; /* no line ends in [cursor, searched) */
    uint64_t looked;   /* `size` when it was looked at last */
    bool ended;
    char *path;
    size_t n_prefix;
    char prefix[PREFIX_BYTES];
    void (*shown)(void *data);
    void *data;
};

struct console {
    uv_loop_t *loop;
    struct outlet outlets[2];
    int n_outlets;
    struct outlet *of[2]; /* by enum console_sink */
    struct console_source *sources;
    uint64_t written;

    char *said; /* our own lines, waiting */
    size_t n_said, n_dropped;

    bool can_status, status_shown, status_dirty;
    char status[STATUS_BYTES];

    uv_timer_t timer; /* of console_drain() */
    bool draining;
    uint64_t stall_ms, limit_ms, drain_begun_ms, moved_ms, moved;
    void (*drained)(uint64_t left, void *data);
    void *drained_data;

    int n_open_handles;
    char look[LOOK_BYTES];
};

static void arm(struct outlet *outlet);
static void check_drained(struct console *console);

/* --- taking lines from a source ------------------------------------------------------------------------------ */

static ssize_t read_at(int fd, char *out, size_t n, uint64_t offset)
{
    size_t got = 0;

    while (got < n) {
        const ssize_t now = pread(fd, out + got, n - got, (off_t)(offset + got));

        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0)
            return got > 0 ? (ssize_t)got : now;
        got += (size_t)now;
    }
    return (ssize_t)got;
}

static bool is_ready(const struct console_source *source)
{
    return source->ended || source->looked != source->size;
}

static void put(struct outlet *outlet, const char *bytes, size_t n)
{
    memcpy(outlet->batch + outlet->end, bytes, n);
    outlet->end += n;
}

static void put_line(struct console_source *source, const char *bytes, size_t length)
{
    struct outlet *outlet = source->outlet;

    put(outlet, source->prefix, source->n_prefix);
    put(outlet, bytes, length);
    put(outlet, "\n", 1);
}

/* The line at `cursor`, `length` bytes without its end: from the file, and cut when it is too long. */
static void put_line_from_file(struct console_source *source, uint64_t length)
{
    struct outlet *outlet = source->outlet;
    const size_t want = length < CONSOLE_LINE_BYTES ? (size_t)length : CONSOLE_LINE_BYTES;
    ssize_t got;

    put(outlet, source->prefix, source->n_prefix);
    got = read_at(source->fd, outlet->batch + outlet->end, want, source->cursor);
    if (got < 0)
        got = 0;
    if (length > CONSOLE_LINE_BYTES) {
        got = (ssize_t)line_cut_length(outlet->batch + outlet->end, (size_t)got);
        outlet->end += (size_t)got;
        outlet->end += (size_t)snprintf(outlet->batch + outlet->end, PATH_BYTES + 64, "... [cut: %" PRIu64 " bytes in %s]",
                                        length, source->path);
    } else {
        outlet->end += (size_t)got;
    }
    put(outlet, "\n", 1);
}

static bool has_room(const struct outlet *outlet)
{
    return BATCH_BYTES - STATUS_BYTES - outlet->end >= LINE_ROOM;
}

static void go_to(struct console_source *source, uint64_t offset)
{
    source->console->written += offset - source->cursor;
    source->cursor = source->searched = offset;
}

/* All whole lines of one read at the cursor. False when the file cannot be read. */
static bool take_whole_lines(struct console_source *source)
{
    const uint64_t rest = source->size - source->cursor;
    char *at = source->console->look;
    ssize_t n = read_at(source->fd, at, rest < LOOK_BYTES ? (size_t)rest : LOOK_BYTES, source->cursor);
    size_t length, consumed, searched = 0;

    if (n <= 0)
        return false;
    while (n > 0 && has_room(source->outlet)) {
        if (!line_end(at, (size_t)n, &length, &consumed, &searched)) {
            source->searched = source->cursor + searched;
            source->looked = source->cursor + (uint64_t)n;
            return true;
        }
        if (length > 0 || at[length] == '\n') /* a carriage return alone shows nothing */
            put_line(source, at, length);
        at += consumed;
        n -= (ssize_t)consumed;
        go_to(source, source->cursor + consumed);
    }
    source->looked = source->cursor;
    return true;
}

/* In the middle of a line: search on for its end, a bounded piece a turn. False when the file cannot be read. */
static bool search_on(struct console_source *source)
{
    for (int i = 0; i < SEARCH_LOOKS && source->searched < source->size; i++) {
        const uint64_t rest = source->size - source->searched;
        char *look = source->console->look;
        const ssize_t n = read_at(source->fd, look, rest < LOOK_BYTES ? (size_t)rest : LOOK_BYTES, source->searched);
        size_t length, consumed, searched = 0;

        if (n <= 0)
            return false;
        if (line_end(look, (size_t)n, &length, &consumed, &searched)) {
            const uint64_t next = source->searched + consumed;

            put_line_from_file(source, source->searched + length - source->cursor);
            go_to(source, next);
            source->looked = next;
            return true;
        }
        source->looked = source->searched + (uint64_t)n;
        source->searched += searched;
        if (source->looked == source->size)
            break;
    }
    return true;
}

/* The source is done with: unlink it, then tell. */
static void finish_source(struct console_source *source)
{
    void (*shown)(void *) = source->shown;
    void *data = source->data;

    console_drop(source);
    if (shown != NULL)
        shown(data);
}

/* One turn of one source. False when the source is finished (and gone). */
static bool take_turn(struct console_source *source)
{
    bool readable = true;

    if (source->looked != source->size)
        readable = source->searched > source->cursor ? search_on(source) : take_whole_lines(source);
    if (!readable) { /* a file that was cut or cannot be read any more has nothing to show */
        go_to(source, source->size);
        source->looked = source->size;
    }
    if (!source->ended || source->looked != source->size || !has_room(source->outlet))
        return true;
    if (source->cursor < source->size) { /* the last line has no newline of its own */
        put_line_from_file(source, source->size - source->cursor);
        go_to(source, source->size);
    }
    finish_source(source);
    return false;
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

static void put_said(struct console *console, struct outlet *outlet)
{
    if (outlet != console->of[CONSOLE_ERR] || console->n_said == 0)
        return;
    put(outlet, console->said, console->n_said);
    console->n_said = 0;
    if (console->n_dropped > 0)
        console_say(console, "fsdprun: %zu lines of the launcher itself were dropped here", console->n_dropped);
    console->n_dropped = 0;
}

static void put_sources(struct console *console, struct outlet *outlet)
{
    struct console_source *source = outlet->turn != NULL ? outlet->turn : console->sources;
    size_t n = 0;

    for (const struct console_source *s = console->sources; s != NULL; s = s->next)
        n++;
    for (; n > 0 && has_room(outlet); n--) {
        struct console_source *next = source->next != NULL ? source->next : console->sources;

        outlet->turn = next; /* console_drop() moves it on when it drops that very one */
        if (source->outlet == outlet && is_ready(source))
            take_turn(source);
        source = outlet->turn;
        if (source == NULL)
            source = console->sources;
        if (source == NULL)
            break;
    }
}

static bool has_work(const struct console *console, const struct outlet *outlet)
{
    if (outlet->start < outlet->end)
        return true;
    if (outlet == console->of[CONSOLE_ERR] && (console->n_said > 0 || console->status_dirty))
        return true;
    for (const struct console_source *source = console->sources; source != NULL; source = source->next)
        if (source->outlet == outlet && is_ready(source))
            return true;
    return false;
}

static void fill_batch(struct console *console, struct outlet *outlet)
{
    const bool with_status = console->can_status && outlet == console->of[CONSOLE_ERR];
    size_t lead = 0;

    outlet->start = outlet->end = 0;
    if (with_status && console->status_shown) {
        put(outlet, clear_line, sizeof clear_line - 1);
        lead = outlet->end;
    }
    put_said(console, outlet);
    put_sources(console, outlet);
    if (with_status && outlet->end == lead && !console->status_dirty) {
        outlet->end = 0; /* nothing came: the status line may stand */
        return;
    }
    if (with_status) {
        put(outlet, console->status, strlen(console->status));
        console->status_shown = console->status[0] != '\0';
        console->status_dirty = false;
    }
}

/* Nobody takes what this sink is given: let its sources pass. */
static void swallow(struct console *console, struct outlet *outlet)
{
    struct console_source *next;

    outlet->start = outlet->end = 0;
    if (outlet == console->of[CONSOLE_ERR]) {
        console->n_said = 0;
        console->status_dirty = false;
    }
    for (struct console_source *source = console->sources; source != NULL; source = next) {
        next = source->next;
        if (source->outlet != outlet)
            continue;
        go_to(source, source->size);
        source->looked = source->size;
        if (source->ended)
            finish_source(source);
    }
}

/* One batch on its way: made when the one before is written, written as far as it goes. */
static void pump(struct outlet *outlet)
{
    struct console *console = outlet->console;
    ssize_t n;

    if (outlet->sink.kind == SINK_NONE) {
        swallow(console, outlet);
        return;
    }
    if (outlet->start == outlet->end)
        fill_batch(console, outlet);
    if (outlet->start == outlet->end)
        return;
    n = sink_write(&outlet->sink, outlet->batch + outlet->start, outlet->end - outlet->start);
    if (n < 0) {
        swallow(console, outlet);
        return;
    }
    outlet->start += (size_t)n;
    outlet->taken += (size_t)n;
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

static void disarm(struct outlet *outlet)
{
    if (!outlet->armed)
        return;
    outlet->armed = false;
    if (outlet->polled)
        uv_poll_stop(&outlet->uv.poll);
    else
        uv_idle_stop(&outlet->uv.idle);
}

static void on_turn(struct outlet *outlet)
{
    pump(outlet);
    if (!has_work(outlet->console, outlet))
        disarm(outlet);
    check_drained(outlet->console); /* last: the console may be destroyed by it */
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    on_turn(poll->data);
}

static void on_idle(uv_idle_t *idle)
{
    on_turn(idle->data);
}

static void arm(struct outlet *outlet)
{
    if (outlet->armed)
        return;
    outlet->armed = true;
    if (outlet->polled)
        uv_poll_start(&outlet->uv.poll, UV_READABLE, on_writable); /* the epoll descriptor is what gets readable */
    else
        uv_idle_start(&outlet->uv.idle, on_idle);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct console *console = handle->data; /* as console_destroy() left it */

    if (--console->n_open_handles > 0)
        return;
    for (int i = 0; i < console->n_outlets; i++) {
        sink_fini(&console->outlets[i].sink);
        free(console->outlets[i].batch);
    }
    free(console->said);
    free(console);
}

static enum fsdp_status open_outlet(struct console *console, int fd, struct fsdp_err *err)
{
    struct outlet *outlet = &console->outlets[console->n_outlets];
    int error;

    outlet->console = console;
    outlet->batch = malloc(BATCH_BYTES);
    if (outlet->batch == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the console");
    sink_init(&outlet->sink, fd);
    console->n_outlets++;
    outlet->polled = outlet->sink.ready >= 0;
    error = outlet->polled ? uv_poll_init(console->loop, &outlet->uv.poll, outlet->sink.ready)
                           : uv_idle_init(console->loop, &outlet->uv.idle);
    if (error < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "watching descriptor %d: %s", fd, uv_strerror(error));
    outlet->uv.handle.data = outlet;
    console->n_open_handles++;
    return FSDP_OK;
}

enum fsdp_status console_create(struct console **out, uv_loop_t *loop, int out_fd, int err_fd, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct console *console = calloc(1, sizeof *console);
    const char *term = getenv("TERM");

    *out = NULL;
    if (console == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the console");
    signal(SIGPIPE, SIG_IGN);
    console->loop = loop;
    uv_timer_init(loop, &console->timer);
    console->timer.data = console;
    console->n_open_handles = 1;
    console->said = malloc(SAY_BYTES);
    status = console->said == NULL ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the console")
                                   : open_outlet(console, err_fd, err);
    if (status == FSDP_OK && !sink_same(out_fd, err_fd))
        status = open_outlet(console, out_fd, err);
    if (status != FSDP_OK) {
        console_destroy(console);
        return status;
    }
    console->of[CONSOLE_ERR] = &console->outlets[0];
    console->of[CONSOLE_OUT] = &console->outlets[console->n_outlets - 1];
    console->can_status = console->outlets[0].sink.tty && (term == NULL || strcmp(term, "dumb") != 0);
    *out = console;
    return FSDP_OK;
}

static uint64_t clock_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* The last words: our own lines and the end of the status line, as far as the terminal takes them in time. */
static void flush_own(struct console *console, int timeout_ms)
{
    struct outlet *outlet = console->of[CONSOLE_ERR];
    const uint64_t deadline = clock_ms() + (uint64_t)timeout_ms;

    if (outlet == NULL)
        return;
    console_status(console, NULL);
    while (outlet->sink.kind != SINK_NONE &&
           (outlet->start < outlet->end || console->n_said > 0 || console->status_dirty)) {
        const uint64_t now = clock_ms();

        if (now >= deadline || !sink_wait(&outlet->sink, (int)(deadline - now)))
            break;
        pump(outlet);
    }
}

static void close_handle(struct console *console, uv_handle_t *handle)
{
    handle->data = console;
    uv_close(handle, on_handle_closed);
}

void console_destroy(struct console *console)
{
    if (console == NULL)
        return;
    for (struct console_source *source = console->sources, *next; source != NULL; source = next) {
        next = source->next;
        console_drop(source);
    }
    flush_own(console, 200);
    for (int i = 0; i < console->n_outlets; i++)
        if (console->outlets[i].uv.handle.data != NULL)
            close_handle(console, &console->outlets[i].uv.handle);
    close_handle(console, (uv_handle_t *)&console->timer);
}

/* --- what the agent says ------------------------------------------------------------------------------------------ */

void console_say(struct console *console, const char *format, ...)
{
    char line[SAY_LINE_BYTES];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n < 0)
        return;
    if ((size_t)n > sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    if (console == NULL) {
        if (write(STDERR_FILENO, line, (size_t)n) < 0)
            return; /* nobody to tell */
        return;
    }
    if (console->n_said + (size_t)n > SAY_BYTES) {
        console->n_dropped++;
        return;
    }
    memcpy(console->said + console->n_said, line, (size_t)n);
    console->n_said += (size_t)n;
    arm(console->of[CONSOLE_ERR]);
}

void console_status(struct console *console, const char *text)
{
    if (console == NULL || !console->can_status)
        return;
    if (text == NULL)
        text = "";
    if (strcmp(text, console->status) == 0)
        return;
    snprintf(console->status, sizeof console->status, "%s", text);
    console->status_dirty = true;
    arm(console->of[CONSOLE_ERR]);
}

bool console_is_tty(const struct console *console)
{
    return console->can_status;
}

int console_width(const struct console *console)
{
    return sink_width(&console->of[CONSOLE_ERR]->sink);
}

/* --- sources ------------------------------------------------------------------------------------------------------ */

enum fsdp_status console_add(struct console *console, struct console_source **out,
                             const struct console_source_spec *spec, struct fsdp_err *err)
{
    struct console_source *source = calloc(1, sizeof *source);

    *out = NULL;
    if (source != NULL)
        source->path = strndup(spec->path != NULL ? spec->path : "", PATH_BYTES - 1);
    if (source == NULL || source->path == NULL) {
        free(source);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to show %s", spec->path);
    }
    source->console = console;
    source->outlet = console->of[spec->sink];
    source->fd = spec->fd;
    source->size = source->cursor = source->searched = source->looked = spec->offset;
    source->n_prefix =
        (size_t)snprintf(source->prefix, sizeof source->prefix, "%s", spec->prefix != NULL ? spec->prefix : "");
    if (source->n_prefix >= sizeof source->prefix)
        source->n_prefix = sizeof source->prefix - 1;
    source->shown = spec->shown;
    source->data = spec->data;
    source->next = console->sources;
    if (source->next != NULL)
        source->next->previous = source;
    console->sources = source;
    *out = source;
    return FSDP_OK;
}

void console_grew(struct console_source *source, uint64_t size)
{
    if (size <= source->size)
        return;
    source->size = size;
    arm(source->outlet);
}

void console_end(struct console_source *source)
{
    source->ended = true;
    arm(source->outlet);
}

void console_drop(struct console_source *source)
{
    struct console *console = source->console;

    for (int i = 0; i < console->n_outlets; i++)
        if (console->outlets[i].turn == source)
            console->outlets[i].turn = source->next;
    if (source->previous != NULL)
        source->previous->next = source->next;
    else
        console->sources = source->next;
    if (source->next != NULL)
        source->next->previous = source->previous;
    free(source->path);
    free(source);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

uint64_t console_backlog(const struct console *console)
{
    uint64_t left = 0;

    for (int i = 0; i < console->n_outlets; i++)
        left += console->outlets[i].end - console->outlets[i].start;
    for (const struct console_source *source = console->sources; source != NULL; source = source->next)
        left += source->size - source->cursor;
    return left;
}

uint64_t console_written(const struct console *console)
{
    return console->written;
}

static bool is_drained(const struct console *console)
{
    if (console->sources != NULL)
        return false;
    for (int i = 0; i < console->n_outlets; i++)
        if (has_work(console, &console->outlets[i]))
            return false;
    return true;
}

static bool drains_in_vain(struct console *console)
{
    const uint64_t now = clock_ms();
    uint64_t moved = 0;
    bool tty = false;

    for (int i = 0; i < console->n_outlets; i++) {
        moved += console->outlets[i].taken;
        tty = tty || (console->outlets[i].sink.tty && has_work(console, &console->outlets[i]));
    }
    if (moved != console->moved) {
        console->moved = moved;
        console->moved_ms = now;
    }
    return now - console->moved_ms >= console->stall_ms || (tty && now - console->drain_begun_ms >= console->limit_ms);
}

static void end_drain(struct console *console)
{
    const uint64_t left = console_backlog(console);

    console->draining = false;
    uv_timer_stop(&console->timer);
    console->drained(left, console->drained_data);
}

static void check_drained(struct console *console)
{
    if (console->draining && is_drained(console))
        end_drain(console);
}

static void on_drain_tick(uv_timer_t *timer)
{
    struct console *console = timer->data;

    if (is_drained(console) || drains_in_vain(console))
        end_drain(console);
}

void console_drain(struct console *console, uint64_t stall_ms, uint64_t limit_ms,
                   void (*done)(uint64_t left, void *data), void *data)
{
    console->draining = true;
    console->stall_ms = stall_ms;
    console->limit_ms = limit_ms;
    console->drain_begun_ms = console->moved_ms = clock_ms();
    console->drained = done;
    console->drained_data = data;
    /* The first tick is at once: it is what calls `done` from the loop when nothing is left. */
    uv_timer_start(&console->timer, on_drain_tick, 0, 50);
}
