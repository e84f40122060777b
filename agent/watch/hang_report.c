#include "agent/watch/hang_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/json.h"

enum {
    PYTHON_LINES = 5, /* of the culprit, in print */
    /* no row begins after so many bytes, so that one more row and the details fit in the rest */
    ROWS_BYTES = HANG_REPORT_BYTES / 2,
    /* the most bytes for rows of a node on which no rank is the culprit */
    OTHERS_BYTES = 8192
};

static int in_order(const void *a, const void *b)
{
    const struct hang_row *first = a, *second = b;

    if (first->culprit != second->culprit)
        return first->culprit ? -1 : 1;
    return (first->rank > second->rank) - (first->rank < second->rank);
}

void hang_report_sort(struct hang_report *report)
{
    qsort(report->rows, (size_t)report->n_rows, sizeof *report->rows, in_order);
}

/* Rows that show the same */

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static const char *python_line(const struct hang_row *row)
{
    return row->python != NULL ? python_stack_line(row->python) : "";
}

static bool is_alike(const struct hang_row *a, const struct hang_row *b)
{
    return a->culprit == b->culprit && a->waits == b->waits && a->step == b->step && a->looked == b->looked &&
           is_same_text(a->host, b->host) && is_same_text(a->phase, b->phase) &&
           is_same_text(a->pass, b->pass) && strcmp(a->layer, b->layer) == 0 &&
           a->collective.sequence == b->collective.sequence &&
           isnan(a->collective.ended_s_ago) == isnan(b->collective.ended_s_ago) &&
           strcmp(a->collective.group, b->collective.group) == 0 &&
           strcmp(a->collective.kind, b->collective.kind) == 0 && a->look.state == b->look.state &&
           strcmp(a->look.wchan, b->look.wchan) == 0 && strcmp(a->look.syscall, b->look.syscall) == 0 &&
           strcmp(a->look.file, b->look.file) == 0 && strcmp(python_line(a), python_line(b)) == 0;
}

/* Does an earlier row show the same? Then this row was printed together with it. */
static bool was_shown(const struct hang_report *report, int row)
{
    for (int i = 0; i < row; i++)
        if (is_alike(&report->rows[i], &report->rows[row]))
            return true;
    return false;
}

/*
 * Append the ranks of all rows that show the same as this one, as "0-2,4". Returns the longest of their
 * silences.
 */
static double add_ranks(struct json_text *out, const struct hang_report *report, int row)
{
    double silent_s = 0;
    int first = -1, last = -1;
    bool any = false;

    for (int i = row; i <= report->n_rows; i++) {
        const struct hang_row *at = &report->rows[i];

        if (i < report->n_rows && !is_alike(at, &report->rows[row]))
            continue;
        if (i < report->n_rows && at->silent_s > silent_s)
            silent_s = at->silent_s;
        if (i < report->n_rows && first >= 0 && at->rank == last + 1) {
            last = at->rank;
            continue;
        }
        if (first >= 0) {
            json_add(out, last > first ? "%s%d-%d" : "%s%d", any ? "," : "", first, last);
            any = true;
        }
        if (i < report->n_rows)
            first = last = at->rank;
    }
    return silent_s;
}

static int count_waiting(const struct hang_report *report)
{
    int n = 0;

    for (int i = 0; i < report->n_rows; i++)
        n += !report->rows[i].culprit && report->rows[i].waits;
    return n;
}

/* JSON */

/* Append a text member; null if the text is empty or NULL. */
static void add_text(struct json_text *out, const char *key, const char *text)
{
    json_field_string(out, key, text != NULL && text[0] != '\0' ? text : NULL);
}

static void add_state(struct json_text *out, char state)
{
    const char text[2] = { state, '\0' };

    json_field_string(out, "state", state == '?' || state == '\0' ? NULL : text);
}

static void add_collective(struct json_text *out, const struct hang_row *row)
{
    if (row->collective.sequence == 0) {
        json_field(out, "collective", "null");
        return;
    }
    json_open(out, "collective", '{');
    json_field_string(out, "group", row->collective.group);
    json_field(out, "sequence", "%" PRIu64, row->collective.sequence);
    json_field_string(out, "kind", row->collective.kind);
    json_field(out, "bytes", "%" PRIu64, row->collective.size_bytes);
    json_field_real(out, "ended_s_ago", "%.3f", row->collective.ended_s_ago);
    json_close(out, '}');
}

static void add_threads(struct json_text *out, const struct process_look *look)
{
    if (look->n_threads == 0) {
        json_field(out, "threads", "null");
        return;
    }
    json_open(out, "threads", '{');
    json_field(out, "count", "%d", look->n_threads);
    json_open(out, "others", '[');
    for (int i = 0; i < look->n_others; i++) {
        json_open(out, NULL, '{');
        json_field(out, "count", "%d", look->others[i].count);
        add_state(out, look->others[i].state);
        add_text(out, "wchan", look->others[i].wchan);
        json_close(out, '}');
    }
    json_close(out, ']');
    json_close(out, '}');
}

/* A line is "PATH:NUMBER in FUNCTION". */
static void add_python(struct json_text *out, const struct python_stack *stack)
{
    const char *line, *in;
    char place[PYTHON_STACK_FRAME_BYTES];

    if (stack == NULL) {
        json_field(out, "python", "null");
        return;
    }
    line = python_stack_line(stack);
    in = strstr(line, " in ");
    snprintf(place, sizeof place, "%.*s", (int)(in != NULL ? (size_t)(in - line) : strlen(line)), line);
    json_open(out, "python", '{');
    json_field_string(out, "line", place);
    json_field_string(out, "function", in != NULL ? in + 4 : NULL);
    json_field(out, "threads", "%d", stack->n_threads);
    json_open(out, "frames", '[');
    for (int i = 0; i < stack->n_frames; i++) {
        json_next(out);
        json_add_string(out, stack->frames[i]);
    }
    json_close(out, ']');
    json_close(out, '}');
}

static void add_look(struct json_text *out, const struct hang_row *row)
{
    const struct process_look *look = &row->look;

    add_state(out, look->state);
    add_text(out, "wchan", look->wchan);
    add_text(out, "syscall", look->syscall);
    add_text(out, "file", look->file);
    json_open(out, "kernel", '[');
    for (int i = 0; i < look->n_frames; i++) {
        json_next(out);
        json_add_string(out, look->frames[i]);
    }
    json_close(out, ']');
    add_threads(out, look);
    add_python(out, row->python);
    json_open(out, "missing", '[');
    if (!row->looked) {
        json_next(out);
        json_add_string(out, "/proc did not answer in time");
    }
    if (look->frames_refused) {
        json_next(out);
        json_add_string(out, "kernel: needs root");
    }
    if (row->python_missing != NULL) {
        json_next(out);
        json_add_string(out, row->python_missing);
    }
    json_close(out, ']');
}

/* What the coordinator prints of it */

static __attribute__((format(printf, 2, 3))) void add_line(struct json_text *out, const char *format, ...)
{
    char line[HANG_LINE_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    json_next(out);
    json_add_string(out, line);
}

/* "reduce_scatter #912 of world" */
static const char *collective_words(const struct hang_row *row, char out[160])
{
    snprintf(out, 160, "%s #%" PRIu64 " of %s", row->collective.kind, row->collective.sequence,
             row->collective.group);
    return out;
}

static bool is_in_collective(const struct hang_row *row)
{
    return row->collective.sequence > 0 && isnan(row->collective.ended_s_ago);
}

/* Append the collective in which a rank waits; null if no rank waits in one. */
static void add_waits_in(struct json_text *out, const struct hang_report *report)
{
    char words[160] = "";

    for (int i = 0; i < report->n_rows && words[0] == '\0'; i++)
        if (!report->rows[i].culprit && report->rows[i].waits && is_in_collective(&report->rows[i]))
            collective_words(&report->rows[i], words);
    add_text(out, "waits_in", words);
}

/* Returns where a rank is in the kernel: "read (/data/x)", "futex", or a function of the kernel. */
static const char *where_words(const struct hang_row *row, char out[256])
{
    const struct process_look *look = &row->look;

    if (!row->looked || look->state == '?')
        snprintf(out, 256, "not known");
    else if (look->file[0] != '\0')
        snprintf(out, 256, "%s (%s)", look->syscall, look->file);
    else if (look->wchan[0] != '\0' && look->syscall[0] != '\0')
        snprintf(out, 256, "%s (%s)", look->syscall, look->wchan);
    else
        snprintf(out, 256, "%s", look->syscall[0] != '\0' ? look->syscall : look->wchan);
    return out;
}

/*
 * Returns where a rank is in its program: "backward layers.3.w1", "collective layers.4, backward",
 * "train.py:41 in step", "-".
 */
static const char *place_words(const struct hang_row *row, char out[192])
{
    const char *words[] = { row->phase != NULL ? row->phase : "", row->layer, python_line(row) };
    struct json_text text = json_text_fixed(out, 192);
    bool any = false;

    out[0] = '\0';
    for (int i = 0; i < 3; i++)
        if (words[i][0] != '\0') {
            json_add(&text, "%s%.60s", any ? " " : "", words[i]);
            any = true;
        }
    if (row->pass != NULL)
        json_add(&text, ", %s", row->pass);
    return any ? out : "-";
}

static void add_shown(struct json_text *out, const struct hang_row *row)
{
    const char state[2] = { row->look.state == '\0' ? '?' : row->look.state, '\0' };
    char step[24] = "-", place[192], where[256];

    if (row->step >= 0)
        snprintf(step, sizeof step, "%" PRId64, row->step);
    json_open(out, "shown", '[');
    for (int i = 0; i < HANG_COLUMNS; i++) {
        const char *const columns[HANG_COLUMNS] = { place_words(row, place), step, state,
                                                    where_words(row, where) };

        json_next(out);
        json_add_string(out, columns[i]);
    }
    json_close(out, ']');
}

/* Append the innermost frame of the program's own code, and some frames around it. */
static void add_python_lines(struct json_text *out, const struct python_stack *stack)
{
    const int first = stack != NULL && stack->own > PYTHON_LINES / 2 ? stack->own - PYTHON_LINES / 2 : 0;

    for (int i = first; stack != NULL && i < stack->n_frames && i < first + PYTHON_LINES; i++)
        add_line(out, "  python  %s", stack->frames[i]);
}

static void add_details(struct json_text *out, const struct hang_row *row)
{
    char words[160], stack[HANG_LINE_BYTES * 2] = "";
    size_t length = 0;

    json_open(out, "details", '[');
    if (is_in_collective(row))
        add_line(out, "  rank %d is in %s", row->rank, collective_words(row, words));
    else if (row->collective.sequence > 0)
        add_line(out, "  rank %d: %s ended %.1f s ago, then none", row->rank, collective_words(row, words),
                 row->collective.ended_s_ago);
    for (int i = 0; i < row->look.n_frames && length < sizeof stack; i++)
        length += (size_t)snprintf(stack + length, sizeof stack - length, "%s%s", i == 0 ? "" : " < ",
                                   row->look.frames[i]);
    if (stack[0] != '\0')
        add_line(out, "  kernel  %s", stack);
    if (row->look.frames_refused)
        add_line(out, "  (kernel stacks need root)");
    add_python_lines(out, row->python);
    json_close(out, ']');
}

/* Rows */

static void add_row(struct json_text *out, const struct hang_report *report, int at)
{
    const struct hang_row *row = &report->rows[at];
    double silent_s;

    json_open(out, NULL, '{');
    json_key(out, "ranks");
    json_add(out, "\"");
    silent_s = add_ranks(out, report, at);
    json_add(out, "\"");
    json_field_bool(out, "culprit", row->culprit);
    json_field_string(out, "host", row->host);
    json_field(out, "pid", "%d", row->pid);
    json_field_string(out, "phase", row->phase);
    json_field_string(out, "pass", row->pass);
    add_text(out, "layer", row->layer);
    json_field(out, "step", row->step >= 0 ? "%" PRId64 : "null", row->step);
    json_field_real(out, "silent_s", "%.3f", silent_s);
    add_collective(out, row);
    add_look(out, row);
    add_shown(out, row);
    json_close(out, '}');
}

static void add_rows(struct json_text *out, const struct hang_report *report)
{
    int n_listed = 0, n_omitted = 0;

    json_open(out, "rows", '[');
    for (int i = 0; i < report->n_rows; i++) {
        if (was_shown(report, i))
            continue;
        if (n_listed == HANG_ROWS_LISTED ||
            out->length > (report->rows[0].culprit ? ROWS_BYTES : OTHERS_BYTES)) {
            n_omitted++;
            continue;
        }
        n_listed++;
        add_row(out, report, i);
    }
    json_close(out, ']');
    json_field(out, "omitted_rows", "%d", n_omitted);
}

char *hang_report_json(const struct hang_report *report)
{
    const struct hang_row *first = &report->rows[0];
    struct json_text out = { 0 };

    json_open(&out, NULL, '{');
    json_field(&out, "ranks", "\"%d\"", first->rank);
    json_field_real(&out, "silent_s", "%.3f", first->silent_s);
    json_field_real(&out, "bound_s", "%.3f", report->bound_s);
    json_field(&out, "waiting", "%d", count_waiting(report));
    add_waits_in(&out, report);
    add_rows(&out, report);
    if (first->culprit)
        add_details(&out, first);
    json_close(&out, '}');
    if (out.failed)
        json_text_free(&out);
    return out.bytes;
}
