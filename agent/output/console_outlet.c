#include <stdlib.h>
#include <string.h>

#include "agent/output/console_impl.h"

enum { PUMP_BATCHES = 8 }; /* then the loop's others have their turn */

static const char clear_line[] = "\r\033[K";

void outlet_put(struct outlet *outlet, const char *bytes, size_t n)
{
    memcpy(outlet->batch + outlet->end, bytes, n);
    outlet->end += n;
}

static void put_said(struct console *console, struct outlet *outlet)
{
    if (outlet != console->of[CONSOLE_ERR] || console->n_said == 0)
        return;
    outlet_put(outlet, console->said, console->n_said);
    console->n_said = 0;
    if (console->n_dropped > 0)
        console_say(console, "fsdprun: %zu lines of the launcher itself were dropped here",
                    console->n_dropped);
    console->n_dropped = 0;
}

static void put_sources(struct console *console, struct outlet *outlet)
{
    struct console_source *source = outlet->turn != NULL ? outlet->turn : console->sources;
    size_t n = 0;

    for (const struct console_source *s = console->sources; s != NULL; s = s->next)
        n++;
    for (; n > 0 && outlet_has_room(outlet); n--) {
        struct console_source *next = source->next != NULL ? source->next : console->sources;

        /* if source_take_turn() drops the source `next`, console_drop() sets outlet->turn to another one */
        outlet->turn = next;
        if (source->outlet == outlet && source_is_ready(source))
            source_take_turn(source);
        source = outlet->turn;
        if (source == NULL)
            source = console->sources;
        if (source == NULL)
            break;
    }
}

bool outlet_has_work(const struct console *console, const struct outlet *outlet)
{
    if (outlet->start < outlet->end)
        return true;
    if (outlet == console->of[CONSOLE_ERR] && (console->n_said > 0 || console->status_dirty))
        return true;
    for (const struct console_source *source = console->sources; source != NULL; source = source->next)
        if (source->outlet == outlet && source_is_ready(source))
            return true;
    return false;
}

static void fill_batch(struct console *console, struct outlet *outlet)
{
    const bool with_status = console->can_status && outlet == console->of[CONSOLE_ERR];
    size_t lead = 0;

    outlet->start = outlet->end = 0;
    if (with_status && console->status_shown) {
        outlet_put(outlet, clear_line, sizeof clear_line - 1);
        lead = outlet->end;
    }
    put_said(console, outlet);
    put_sources(console, outlet);
    if (with_status && outlet->end == lead && !console->status_dirty) {
        outlet->end = 0; /* the batch has only a status line that is shown already, so nothing is written */
        return;
    }
    if (with_status) {
        outlet_put(outlet, console->status, strlen(console->status));
        console->status_shown = console->status[0] != '\0';
        console->status_dirty = false;
    }
}

/* The sink has no reader: skip all that its sources have. */
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
        if (source->outlet == outlet)
            source_pass(source);
    }
}

/* Write one batch. Returns false if there is none, or the sink did not take all of it. */
static bool pump_one(struct outlet *outlet)
{
    struct console *console = outlet->console;
    ssize_t n;

    if (outlet->sink.kind == SINK_NONE) {
        swallow(console, outlet);
        return false;
    }
    if (outlet->start == outlet->end)
        fill_batch(console, outlet);
    if (outlet->start == outlet->end)
        return false;
    n = sink_write(&outlet->sink, outlet->batch + outlet->start, outlet->end - outlet->start);
    if (n < 0) {
        swallow(console, outlet);
        return false;
    }
    outlet->start += (size_t)n;
    outlet->taken += (size_t)n;
    outlet->full = outlet->start < outlet->end;
    return !outlet->full;
}

void outlet_pump(struct outlet *outlet)
{
    for (int i = 0; i < PUMP_BATCHES && pump_one(outlet); i++)
        continue;
}

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
    outlet_pump(outlet);
    if (!outlet_has_work(outlet->console, outlet))
        disarm(outlet);
    console_check_drained(outlet->console); /* last, because the console may be destroyed by this */
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

void outlet_arm(struct outlet *outlet)
{
    if (outlet->armed)
        return;
    outlet->armed = true;
    if (outlet->polled)
        /* the epoll descriptor is what gets readable */
        uv_poll_start(&outlet->uv.poll, UV_READABLE, on_writable);
    else
        uv_idle_start(&outlet->uv.idle, on_idle);
}

void outlet_offer(struct outlet *outlet, struct console_source *source)
{
    struct console *console = outlet->console;

    /*
     * The sink is a terminal with a status line: it is written once per turn of the loop, not once per read.
     */
    if (!outlet->full && !(console->can_status && outlet == console->of[CONSOLE_ERR])) {
        outlet->turn = source;
        outlet_pump(outlet);
        if (!outlet_has_work(console, outlet))
            return;
    }
    outlet_arm(outlet);
}

enum fsdp_status outlet_open(struct console *console, int fd, struct fsdp_err *err)
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
