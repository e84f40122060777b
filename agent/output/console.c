#include "agent/output/console.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/output/console_impl.h"
#include "shard_runtime/core/text.h"

enum { SAY_LINE_BYTES = 8192 }; /* one of our own lines */

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

/*
 * Is our process the only one that writes to the terminal of stderr? If stdout is a pipe, its reader may
 * write to that terminal at any moment ("| cat", "| tee log"), into the middle of a status line.
 */
static bool stdout_keeps_off(const struct console *console)
{
    const struct sink *out = &console->of[CONSOLE_OUT]->sink;

    return console->n_outlets == 1 || out->kind == SINK_FILE || out->kind == SINK_NONE;
}

enum fsdp_status console_create(struct console **out, uv_loop_t *loop, int out_fd, int err_fd,
                                struct fsdp_err *err)
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
                                   : outlet_open(console, err_fd, err);
    if (status == FSDP_OK && !sink_same(out_fd, err_fd))
        status = outlet_open(console, out_fd, err);
    if (status != FSDP_OK) {
        console_destroy(console);
        return status;
    }
    console->of[CONSOLE_ERR] = &console->outlets[0];
    console->of[CONSOLE_OUT] = &console->outlets[console->n_outlets - 1];
    console->can_status = stdout_keeps_off(console) && console->outlets[0].sink.tty &&
                          (term == NULL || strcmp(term, "dumb") != 0);
    *out = console;
    return FSDP_OK;
}

static uint64_t clock_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* Write our own lines and remove the status line, as far as the terminal accepts that within `timeout_ms`. */
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
        outlet_pump(outlet);
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

/*
 * Breaks the lines of `line` for the terminal. Leaves it as it is if there is no memory, or if it would
 * become longer than `size` bytes.
 */
static int wrap(char *line, int n, size_t size, int columns)
{
    char *wrapped = NULL;
    size_t length;
    FILE *out = open_memstream(&wrapped, &length);

    if (out == NULL)
        return n;
    text_wrap_messages(out, line, columns);
    if (fclose(out) == 0 && length < size) {
        memcpy(line, wrapped, length + 1);
        n = (int)length;
    }
    free(wrapped);
    return n;
}

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
    line[n] = '\0';
    if (console != NULL && console->of[CONSOLE_ERR]->sink.tty)
        n = wrap(line, n, sizeof line, console_width(console));
    if (console == NULL) {
        if (write(STDERR_FILENO, line, (size_t)n) < 0)
            return; /* there is nowhere else to report it */
        return;
    }
    if (console->n_said + (size_t)n > SAY_BYTES) {
        console->n_dropped++;
        return;
    }
    memcpy(console->said + console->n_said, line, (size_t)n);
    console->n_said += (size_t)n;
    outlet_arm(console->of[CONSOLE_ERR]);
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
    outlet_arm(console->of[CONSOLE_ERR]);
}

bool console_is_tty(const struct console *console)
{
    return console->can_status;
}

int console_width(const struct console *console)
{
    return sink_width(&console->of[CONSOLE_ERR]->sink);
}

uint64_t console_backlog(const struct console *console)
{
    uint64_t left = 0;

    for (int i = 0; i < console->n_outlets; i++)
        left += console->outlets[i].end - console->outlets[i].start;
    for (const struct console_source *source = console->sources; source != NULL; source = source->next)
        left += source->size - source->cursor;
    return left;
}

static bool is_drained(const struct console *console)
{
    if (console->sources != NULL)
        return false;
    for (int i = 0; i < console->n_outlets; i++)
        if (outlet_has_work(console, &console->outlets[i]))
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
        tty = tty || (console->outlets[i].sink.tty && outlet_has_work(console, &console->outlets[i]));
    }
    if (moved != console->moved) {
        console->moved = moved;
        console->moved_ms = now;
    }
    return now - console->moved_ms >= console->stall_ms ||
           (tty && now - console->drain_begun_ms >= console->limit_ms);
}

static void end_drain(struct console *console)
{
    const uint64_t left = console_backlog(console);

    console->draining = false;
    uv_timer_stop(&console->timer);
    console->drained(left, console->drained_data);
}

void console_check_drained(struct console *console)
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
    /* the first tick comes at once: if nothing is left to show, it calls `done` from the loop */
    uv_timer_start(&console->timer, on_drain_tick, 0, 50);
}
