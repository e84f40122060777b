#include "agent/record/errors_impl.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/json.h"

enum { LINE_MESSAGE_BYTES = 400 };

static const struct {
    const char *name;
    const char *words; /* the words of this class for the line; NULL: add_what() writes them */
} classes[ERRORS_CLASS_COUNT] = {
    [ERRORS_EXIT] = { "exit", NULL },
    [ERRORS_SIGNAL] = { "signal", NULL },
    [ERRORS_EXEC] = { "exec", "could not be started" },
    [ERRORS_HANG] = { "hang", "made no progress" },
    [ERRORS_NODE] = { "node", NULL },
    [ERRORS_WORLD] = { "world", "no world could be formed" },
    [ERRORS_STOPPED] = { "stopped", NULL },
    [ERRORS_NOTICE] = { "notice", "stopped on notice after saving" },
    [ERRORS_IO] = { "io", "I/O error" },
    [ERRORS_CONFIG] = { "config", "cannot be used" },
    [ERRORS_BUG] = { "bug", "internal error" },
};

const char *errors_class_name(enum errors_class class)
{
    return class > 0 && class < ERRORS_CLASS_COUNT ? classes[class].name : "unknown";
}

const char *errors_signal_name(int signal, char *out)
{
    const char *name = sigabbrev_np(signal);

    if (name != NULL)
        snprintf(out, 32, "SIG%s", name);
    else if (signal >= SIGRTMIN && signal <= SIGRTMAX)
        snprintf(out, 32, "SIGRTMIN+%d", signal - SIGRTMIN);
    else
        snprintf(out, 32, "signal %d", signal);
    return out;
}

/* Append a number as a member; null if it is not known. */
static void add_number(struct json_text *out, const char *key, int64_t value, bool known)
{
    if (known)
        json_field(out, key, "%" PRId64, value);
    else
        json_field_string(out, key, NULL);
}

/* Append a text as a member; null if it is empty. */
static void add_text(struct json_text *out, const char *key, const char *text)
{
    json_field_string(out, key, text[0] != '\0' ? text : NULL);
}

static void add_death(struct json_text *out, const struct errors_death *death)
{
    char name[32];

    add_number(out, "rank", death->rank, death->rank >= 0);
    add_number(out, "local_rank", death->local_rank, death->local_rank >= 0);
    json_field_string(out, "host", death->host);
    add_number(out, "pid", death->pid, death->pid > 0);
    add_number(out, "exit_code", death->exit_code, death->exit_code >= 0 && death->signal == 0);
    add_number(out, "signal", death->signal, death->signal > 0);
    json_field_string(out, "signal_name", death->signal > 0 ? errors_signal_name(death->signal, name) : NULL);
}

static void add_cause(struct json_text *out, const struct errors_report *report)
{
    static const struct errors_detail nothing;
    const struct errors_detail *detail = report->detail != NULL ? report->detail : &nothing;

    json_open(out, "cause", '{');
    json_field_string(out, "class", errors_class_name(report->class));
    add_death(out, &report->cause);
    json_field_string(out, "phase", report->phase);
    add_number(out, "step", report->step, report->step >= 0);
    json_field_bool(out, "oom_kill", report->oom_kill);
    add_number(out, "generation", report->generation, true);
    json_field_string(out, "message", report->message);
    add_text(out, "traceback", detail->traceback);
    json_field_real(out, "raised", "%.6f",
                    detail->raised_us > 0 ? (double)detail->raised_us / 1e6 : (double)NAN);
    add_text(out, "error_file", detail->error_file);
    add_text(out, "log", detail->log);
    json_open(out, "stderr", '[');
    for (int i = 0; i < detail->tail.n_lines; i++) {
        json_next(out);
        json_add_string(out, detail->tail.lines[i]);
    }
    json_close(out, ']');
    json_field(out, "hang", "%s", report->hang != NULL ? report->hang : "null");
    json_close(out, '}');
}

char *errors_json(const struct errors_report *report, double time_s)
{
    struct json_text out = { 0 };

    json_open(&out, NULL, '{');
    json_field(&out, "time", "%.6f", time_s);
    json_field(&out, "status", "%d", report->status);
    json_add(&out, ",\n  ");
    add_cause(&out, report);
    json_add(&out, ",\n  ");
    json_open(&out, "collateral", '{');
    json_field(&out, "count", "%zu", report->n_collateral);
    json_open(&out, "ranks", '[');
    for (size_t i = 0; i < report->n_collateral && i < ERRORS_COLLATERAL_LISTED; i++) {
        json_add(&out, i == 0 ? "\n    " : ",\n    ");
        json_open(&out, NULL, '{');
        add_death(&out, &report->collateral[i]);
        json_close(&out, '}');
    }
    json_add(&out, "]}}\n");
    if (out.failed)
        json_text_free(&out);
    return out.bytes;
}

void cut_add(struct cut_text *text, const char *format, ...)
{
    const size_t room = text->size - text->length;
    va_list args;
    int n;

    if (room <= 1)
        return;
    va_start(args, format);
    n = vsnprintf(text->bytes + text->length, room, format, args);
    va_end(args);
    if (n > 0)
        text->length += (size_t)n < room ? (size_t)n : room - 1;
}

static void add_subject(struct cut_text *out, const struct errors_death *cause)
{
    const bool host = cause->host != NULL && cause->host[0] != '\0', pid = cause->pid > 0;

    if (cause->rank >= 0)
        cut_add(out, "rank %d", cause->rank);
    else if (cause->host != NULL)
        cut_add(out, "node");
    else
        return;
    if (host)
        cut_add(out, " (host %s", cause->host);
    if (pid)
        cut_add(out, "%spid %" PRId64, host ? ", " : " (", cause->pid);
    cut_add(out, host || pid ? ") " : " ");
}

static void add_what(struct cut_text *out, enum errors_class class, const struct errors_death *cause)
{
    char name[32];

    if (class == ERRORS_EXIT)
        cut_add(out, "exited with status %d", cause->exit_code);
    else if (class == ERRORS_SIGNAL)
        cut_add(out, "was killed by %s", errors_signal_name(cause->signal, name));
    else if (class == ERRORS_STOPPED)
        cut_add(out, "stopped by %s",
                cause->signal > 0 ? errors_signal_name(cause->signal, name) : "a signal");
    else if (class == ERRORS_NODE)
        cut_add(out, "%s", cause->host != NULL ? "was lost" : "a node was lost");
    else if (class == ERRORS_WORLD && cause->rank >= 0)
        cut_add(out, "%s", classes[ERRORS_EXEC].words);
    else
        cut_add(out, "%s", classes[class].words);
}

/*
 * Replace control bytes by spaces. Each newline becomes one space, together with the indent of the next line.
 */
static void to_one_line(char *text)
{
    char *to = text;

    for (const char *at = text; *at != '\0'; at++) {
        const bool newline = *at == '\n';

        *to++ = (unsigned char)*at < 0x20 ? ' ' : *at;
        if (newline)
            at += strspn(at + 1, " \t\n");
    }
    *to = '\0';
}

const char *errors_line(const struct errors_report *report, char *out, size_t size)
{
    struct cut_text line = { out, size, 0 };

    out[0] = '\0';
    /* A failure that is about no worker has no worker as its subject. */
    if (report->class != ERRORS_STOPPED && report->class != ERRORS_NOTICE &&
        (report->class != ERRORS_WORLD || report->cause.rank >= 0))
        add_subject(&line, &report->cause);
    add_what(&line, report->class, &report->cause);
    if (report->where != NULL)
        cut_add(&line, " %s", report->where);
    else if (report->phase != NULL)
        cut_add(&line, " in %s", report->phase);
    if (report->step >= 0)
        cut_add(&line, "%s step %" PRId64, report->phase != NULL && report->where == NULL ? " of" : " in",
                report->step);
    if (report->cause.rank >= 0)
        cut_add(&line, ", generation %d", report->generation);
    if (report->message != NULL && report->message[0] != '\0')
        cut_add(&line, ": %.*s", LINE_MESSAGE_BYTES, report->message);
    if (report->n_collateral > 0)
        cut_add(&line, "; %zu other rank%s stopped", report->n_collateral,
                report->n_collateral == 1 ? " was" : "s were");
    to_one_line(out);
    return out;
}
