#include "agent/cluster/detail_proto.h"

#include <stdio.h>
#include <string.h>

/* As many of the last lines as fit, each with its newline. */
static void join_lines(char *out, size_t size, const struct errors_tail *tail)
{
    size_t length = 0;
    int first = tail->n_lines;

    while (first > 0 && length + strlen(tail->lines[first - 1]) + 2 <= size)
        length += strlen(tail->lines[--first]) + 1;
    out[0] = '\0';
    length = 0;
    for (int i = first; i < tail->n_lines; i++)
        length += (size_t)snprintf(out + length, size - length, "%s\n", tail->lines[i]);
}

static void split_lines(struct errors_tail *tail, const char *text)
{
    char *next;

    tail->n_lines = 0;
    snprintf(tail->bytes, sizeof tail->bytes, "%.*s", (int)sizeof tail->bytes - 1, text);
    for (char *line = tail->bytes; *line != '\0' && tail->n_lines < ERRORS_TAIL_LINES; line = next) {
        tail->lines[tail->n_lines++] = line;
        next = line + strcspn(line, "\n");
        if (*next == '\n')
            *next++ = '\0';
    }
}

void detail_to_proto(struct proto_detail *out, const struct errors_detail *detail)
{
    memset(out, 0, sizeof *out);
    if (detail == NULL)
        return;
    join_lines(out->stderr_tail, sizeof out->stderr_tail, &detail->tail);
    snprintf(out->message, sizeof out->message, "%s", detail->message);
    snprintf(out->traceback, sizeof out->traceback, "%s", detail->traceback);
    snprintf(out->error_file, sizeof out->error_file, "%s", detail->error_file);
    snprintf(out->log, sizeof out->log, "%s", detail->log);
    out->shown = detail->shown;
    out->output_at = (int64_t)detail->output_at;
    out->raised_us = detail->raised_us;
}

bool detail_from_proto(struct errors_detail *out, const struct proto_detail *detail)
{
    memset(out, 0, sizeof *out);
    split_lines(&out->tail, detail->stderr_tail);
    snprintf(out->message, sizeof out->message, "%s", detail->message);
    snprintf(out->traceback, sizeof out->traceback, "%s", detail->traceback);
    snprintf(out->error_file, sizeof out->error_file, "%s", detail->error_file);
    snprintf(out->log, sizeof out->log, "%s", detail->log);
    out->shown = detail->shown != 0;
    out->output_at = (uint64_t)detail->output_at;
    out->raised_us = detail->raised_us;
    return !errors_detail_is_empty(out);
}
