/* What a simulated fsdprun says becomes a line of the history. Its workers write nothing. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/bug.h"
#include "agent/os/sink.h"
#include "agent/output/console.h"
#include "agent/output/output.h"
#include "tests/sim/sim.h"

static void say(const char *format, va_list args)
{
    char words[600];

    vsnprintf(words, sizeof words, format, args);
    words[strcspn(words, "\n")] = '\0';
    sim_trace("says: %s", words);
}

enum fsdp_status console_create(struct console **out, uv_loop_t *loop, int out_fd, int err_fd,
                                struct fsdp_err *err)
{
    (void)out_fd, (void)err_fd, (void)err;
    *out = loop->data; /* any address: nothing is kept */
    return FSDP_OK;
}

void console_destroy(struct console *console)
{
    (void)console;
}

void console_say(struct console *console, const char *format, ...)
{
    va_list args;

    (void)console;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int dprintf(int fd, const char *format, ...)
{
    va_list args;

    (void)fd;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return 0;
}

void sink_say(int fd, const char *text, int patience_ms)
{
    (void)fd, (void)patience_ms;
    console_say(NULL, "%s", text);
}

int sink_width(const struct sink *sink)
{
    (void)sink;
    return 80;
}

int isatty(int fd)
{
    (void)fd;
    return 0;
}

void bug_stop(const char *format, ...)
{
    char words[300];
    va_list args;

    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    sim_violated("no bug", "%s", words);
}

enum fsdp_status output_create(struct output **out, uv_loop_t *loop, const struct output_spec *spec,
                               struct fsdp_err *err)
{
    (void)loop, (void)spec, (void)err;
    *out = NULL;
    return FSDP_OK;
}

void output_destroy(struct output *output)
{
    (void)output;
}

void output_drain(struct output *output, void (*done)(void *data), void *data)
{
    (void)output;
    done(data);
}

void output_hurry(struct output *output)
{
    (void)output;
}

void output_resized(struct output *output)
{
    (void)output;
}

bool output_within_line(const struct output *output)
{
    (void)output;
    return false;
}

uint64_t output_taken(const struct output *output)
{
    (void)output;
    return 0;
}
