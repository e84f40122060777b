#include "agent/record/errors.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/os/json_text.h"
#include "agent/record/rundir.h"

enum { LINE_MESSAGE_BYTES = 400, ACCOUNT_TRACEBACK_LINES = 40, ACCOUNT_TAIL_LINES = 8, SCREEN_BYTES = 8192 };

static const char *const class_names[ERRORS_CLASS_COUNT] = {
    [ERRORS_EXIT] = "exit",       [ERRORS_SIGNAL] = "signal", [ERRORS_EXEC] = "exec",
    [ERRORS_HANG] = "hang",       [ERRORS_NODE] = "node",     [ERRORS_WORLD] = "world",
    [ERRORS_STOPPED] = "stopped", [ERRORS_NOTICE] = "notice", [ERRORS_IO] = "io",
    [ERRORS_CONFIG] = "config",   [ERRORS_BUG] = "bug",
};

const char *errors_class_name(enum errors_class class)
{
    return class > 0 && class < ERRORS_CLASS_COUNT ? class_names[class] : "unknown";
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

int errors_death_status(const struct errors_death *death)
{
    return death->signal != 0 ? 128 + death->signal : death->exit_code;
}

/* `lead` stands before the key: "" for the first of an object, ", " for the others. */
static void put_number(FILE *out, const char *lead, const char *key, int64_t value, bool known)
{
    if (known)
        fprintf(out, "%s\"%s\": %" PRId64, lead, key, value);
    else
        fprintf(out, "%s\"%s\": null", lead, key);
}

static void put_string(FILE *out, const char *key, const char *text)
{
    fprintf(out, ", \"%s\": ", key);
    json_put_text(out, text);
}

static void put_death(FILE *out, const char *lead, const struct errors_death *death)
{
    char name[32];

    put_number(out, lead, "rank", death->rank, death->rank >= 0);
    put_number(out, ", ", "local_rank", death->local_rank, death->local_rank >= 0);
    put_string(out, "host", death->host);
    put_number(out, ", ", "pid", death->pid, death->pid > 0);
    put_number(out, ", ", "exit_code", death->exit_code, death->exit_code >= 0 && death->signal == 0);
    put_number(out, ", ", "signal", death->signal, death->signal > 0);
    put_string(out, "signal_name", death->signal > 0 ? errors_signal_name(death->signal, name) : NULL);
}

static void put_cause(FILE *out, const struct errors_report *report)
{
    const struct errors_detail *detail = report->detail;

    fputs("  \"cause\": {\"class\": ", out);
    json_put_text(out, errors_class_name(report->class));
    put_death(out, ", ", &report->cause);
    put_string(out, "phase", report->phase);
    put_number(out, ", ", "step", report->step, report->step >= 0);
    fprintf(out, ", \"oom_kill\": %s", report->oom_kill ? "true" : "false");
    put_number(out, ", ", "generation", report->generation, true);
    put_string(out, "message", report->message);
    put_string(out, "traceback", detail != NULL && detail->traceback[0] != '\0' ? detail->traceback : NULL);
    if (detail != NULL && detail->raised_us > 0)
        fprintf(out, ", \"raised\": %.6f", (double)detail->raised_us / 1e6);
    else
        fputs(", \"raised\": null", out);
    put_string(out, "error_file",
               detail != NULL && detail->error_file[0] != '\0' ? detail->error_file : NULL);
    put_string(out, "log", detail != NULL && detail->log[0] != '\0' ? detail->log : NULL);
    fputs(", \"stderr\": [", out);
    for (int i = 0; detail != NULL && i < detail->tail.n_lines; i++) {
        fputs(i == 0 ? "" : ", ", out);
        json_put_text(out, detail->tail.lines[i]);
    }
    fputs("]},\n", out);
}

char *errors_json(const struct errors_report *report, double time_s)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    bool failed;

    if (out == NULL)
        return NULL;
    fprintf(out, "{\"time\": %.6f, \"status\": %d,\n", time_s, report->status);
    put_cause(out, report);
    fprintf(out, "  \"collateral\": {\"count\": %zu, \"ranks\": [", report->n_collateral);
    for (size_t i = 0; i < report->n_collateral && i < ERRORS_COLLATERAL_LISTED; i++) {
        fputs(i == 0 ? "\n    {" : ",\n    {", out);
        put_death(out, "", &report->collateral[i]);
        fputc('}', out);
    }
    fputs("]}}\n", out);
    failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

enum fsdp_status errors_write(struct rundir *rundir, const struct errors_report *report, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct timespec now;
    char *text;

    clock_gettime(CLOCK_REALTIME, &now);
    text = errors_json(report, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for errors.json");
    status = rundir_write(rundir, "errors.json", text, strlen(text), err);
    free(text);
    return status;
}

__attribute__((format(printf, 4, 5))) static void add(char *out, size_t size, size_t *end, const char *format,
                                                      ...)
{
    va_list args;
    int n;

    if (*end + 1 >= size)
        return;
    va_start(args, format);
    n = vsnprintf(out + *end, size - *end, format, args);
    va_end(args);
    if (n > 0)
        *end = (size_t)n < size - *end ? *end + (size_t)n : size - 1;
}

static void add_subject(char *out, size_t size, size_t *end, const struct errors_report *report)
{
    const struct errors_death *cause = &report->cause;
    const bool host = cause->host != NULL && cause->host[0] != '\0', pid = cause->pid > 0;

    if (cause->rank >= 0)
        add(out, size, end, "rank %d", cause->rank);
    else if (cause->host != NULL)
        add(out, size, end, "node");
    else
        return;
    if (host || pid)
        add(out, size, end, " (");
    if (host)
        add(out, size, end, "host %s", cause->host);
    if (pid)
        add(out, size, end, "%spid %" PRId64, host ? ", " : "", cause->pid);
    if (host || pid)
        add(out, size, end, ")");
    add(out, size, end, " ");
}

static void add_what(char *out, size_t size, size_t *end, const struct errors_report *report)
{
    char name[32];

    switch (report->class) {
    case ERRORS_EXIT:
        add(out, size, end, "exited with status %d", report->cause.exit_code);
        break;
    case ERRORS_SIGNAL:
        add(out, size, end, "was killed by %s", errors_signal_name(report->cause.signal, name));
        break;
    case ERRORS_EXEC:
        add(out, size, end, "could not be started");
        break;
    case ERRORS_HANG:
        add(out, size, end, "made no progress");
        break;
    case ERRORS_NODE:
        add(out, size, end, "%s", report->cause.host != NULL ? "was lost" : "a node was lost");
        break;
    case ERRORS_WORLD:
        add(out, size, end, "no world could be formed");
        break;
    case ERRORS_STOPPED:
        add(out, size, end, "stopped by %s",
            report->cause.signal > 0 ? errors_signal_name(report->cause.signal, name) : "a signal");
        break;
    case ERRORS_NOTICE:
        add(out, size, end, "stopped on notice after saving");
        break;
    case ERRORS_IO:
        add(out, size, end, "I/O error");
        break;
    case ERRORS_CONFIG:
        add(out, size, end, "cannot be used");
        break;
    case ERRORS_BUG:
    case ERRORS_CLASS_COUNT:
        add(out, size, end, "internal error");
        break;
    }
}

/* One line, whatever the message holds; the indent of its further lines goes with their newline. */
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
    size_t end = 0;

    out[0] = '\0';
    /* A signal to the launcher, and other classes that are about no worker, have no subject. */
    if (report->class != ERRORS_STOPPED && report->class != ERRORS_WORLD && report->class != ERRORS_NOTICE)
        add_subject(out, size, &end, report);
    add_what(out, size, &end, report);
    if (report->where != NULL)
        add(out, size, &end, " %s", report->where);
    else if (report->phase != NULL)
        add(out, size, &end, " in %s", report->phase);
    if (report->step >= 0)
        add(out, size, &end, "%s step %" PRId64,
            report->phase != NULL && report->where == NULL ? " of" : " in", report->step);
    if (report->cause.rank >= 0)
        add(out, size, &end, ", generation %d", report->generation);
    if (report->message != NULL && report->message[0] != '\0')
        add(out, size, &end, ": %.*s", LINE_MESSAGE_BYTES, report->message);
    if (report->n_collateral > 0)
        add(out, size, &end, "; %zu other rank%s stopped", report->n_collateral,
            report->n_collateral == 1 ? " was" : "s were");
    to_one_line(out);
    return out;
}

/* --- what stands above the line ------------------------------------------------------------------------------------ */

void errors_detail_copy(struct errors_detail *to, const struct errors_detail *from)
{
    *to = *from;
    for (int i = 0; i < from->tail.n_lines; i++)
        to->tail.lines[i] = to->tail.bytes + (from->tail.lines[i] - from->tail.bytes);
}

void errors_copy_text(char *out, size_t size, const char *text, size_t n)
{
    if (n >= size) {
        size_t cut = size - 1;

        for (int i = 0; i < 4 && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80; i++)
            cut--;
        n = ((unsigned char)text[cut] & 0xc0) == 0x80 ? size - 1 : cut;
    }
    memcpy(out, text, n);
    out[n] = '\0';
}

bool errors_detail_is_empty(const struct errors_detail *detail)
{
    return detail->tail.n_lines == 0 && detail->message[0] == '\0' && detail->traceback[0] == '\0' &&
           detail->error_file[0] == '\0' && detail->log[0] == '\0';
}

/*
 * Is the last line of the traceback among the last lines of stderr? One from an error file may never have been shown.
 * PyTorch puts "[rank0]: " before each line.
 */
static bool traceback_is_in_tail(const struct errors_detail *detail)
{
    size_t end = strlen(detail->traceback), start;

    while (end > 0 && detail->traceback[end - 1] == '\n')
        end--;
    for (start = end; start > 0 && detail->traceback[start - 1] != '\n';)
        start--;
    for (int i = 0; i < detail->tail.n_lines; i++) {
        const char *line = detail->tail.lines[i];
        const size_t length = strlen(line);

        if (length >= end - start &&
            memcmp(line + length - (end - start), detail->traceback + start, end - start) == 0)
            return true;
    }
    return false;
}

bool errors_detail_went_by(const struct errors_detail *detail, uint64_t output_now)
{
    return detail->shown && output_now - detail->output_at <= SCREEN_BYTES &&
           (detail->traceback[0] == '\0' || traceback_is_in_tail(detail));
}

/* A terminal acts on control bytes: what a worker wrote is shown, not obeyed. */
static void add_line(char *out, size_t size, size_t *end, const char *line, size_t length)
{
    const size_t from = *end;

    add(out, size, end, "  %.*s", (int)length, line);
    for (size_t i = from; i < *end; i++)
        if (((unsigned char)out[i] < 0x20 && out[i] != '\t') || out[i] == 0x7f)
            out[i] = '?';
    add(out, size, end, "\n");
}

static void account_of_traceback(const char *text, char *out, size_t size, size_t *end)
{
    int n_lines = 0;

    for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n')
        n_lines++;
    add(out, size, end, "fsdprun: its Python traceback%s:\n",
        n_lines > ACCOUNT_TRACEBACK_LINES ? " (the last lines of it)" : "");
    for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n')
        if (n_lines-- <= ACCOUNT_TRACEBACK_LINES)
            add_line(out, size, end, at, strcspn(at, "\n"));
}

static void account_of_tail(const struct errors_tail *tail, char *out, size_t size, size_t *end)
{
    int first = tail->n_lines > ACCOUNT_TAIL_LINES ? tail->n_lines - ACCOUNT_TAIL_LINES : 0;

    for (int i = first - 1; i >= 0; i--)
        if (strstr(tail->lines[i], "Traceback (most recent call last)") != NULL) {
            first = i;
            break;
        }
    add(out, size, end, "fsdprun: its last lines on stderr:\n");
    for (int i = first; i < tail->n_lines; i++)
        add_line(out, size, end, tail->lines[i], strlen(tail->lines[i]));
}

const char *errors_account(const struct errors_detail *detail, char *out, size_t size)
{
    size_t end = 0;

    out[0] = '\0';
    if (detail == NULL)
        return out;
    if (detail->traceback[0] != '\0')
        account_of_traceback(detail->traceback, out, size, &end);
    else if (detail->tail.n_lines > 0)
        account_of_tail(&detail->tail, out, size, &end);
    return out;
}

/* Zero-terminate the lines of bytes[0..n) and point at the last ones. What a carriage return overwrote is left out. */
static void split_tail(struct errors_tail *tail, size_t n)
{
    char *bytes = tail->bytes;
    size_t end = n;

    while (end > 0 && (bytes[end - 1] == '\n' || bytes[end - 1] == '\r'))
        end--;
    while (end > 0 && tail->n_lines < ERRORS_TAIL_LINES) {
        size_t start, stop = end;

        while (stop > 0 && bytes[stop - 1] == '\r')
            stop--; /* of "\r\n" */
        start = stop;
        while (start > 0 && bytes[start - 1] != '\n' && bytes[start - 1] != '\r')
            start--;
        bytes[stop] = '\0';
        tail->lines[ERRORS_TAIL_LINES - ++tail->n_lines] = bytes + start;
        while (start > 0 && bytes[start - 1] != '\n')
            start--;
        end = start > 0 ? start - 1 : 0;
        if (start == 0)
            break;
    }
    memmove(tail->lines, tail->lines + ERRORS_TAIL_LINES - tail->n_lines,
            sizeof *tail->lines * (size_t)tail->n_lines);
}

/* Take tail->bytes[0..n) apart, from the beginning of a line where older ones were left out, unless all of it is one. */
static void cut_to_line(struct errors_tail *tail, size_t n, bool cut)
{
    const char *newline = cut ? memchr(tail->bytes, '\n', n) : NULL;
    const size_t skip =
        newline != NULL && newline + 1 < tail->bytes + n ? (size_t)(newline + 1 - tail->bytes) : 0;

    memmove(tail->bytes, tail->bytes + skip, n - skip);
    split_tail(tail, n - skip);
}

void errors_tail_take(struct errors_tail *tail, const char *bytes, size_t n, bool cut)
{
    const size_t kept = n < ERRORS_TAIL_BYTES ? n : ERRORS_TAIL_BYTES;

    tail->n_lines = 0;
    memcpy(tail->bytes, bytes + n - kept, kept);
    cut_to_line(tail, kept, cut || kept < n);
}
