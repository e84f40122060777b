#include "agent/output/log_filter.h"

#include <stdlib.h>
#include <string.h>

#include "agent/output/line_cut.h"

struct log_filter {
    char *const *words;
    log_filter_found *found;
    void *arg;
    size_t n;     /* bytes in `begun` */
    size_t whole; /* length of the current line so far; more than `n` if the line is too long to be kept */
    char begun[LOG_FILTER_LINE_BYTES];
};

struct log_filter *log_filter_create(char *const *words, log_filter_found *found, void *arg)
{
    struct log_filter *filter = malloc(sizeof *filter);

    if (filter == NULL)
        return NULL;
    filter->words = words;
    filter->found = found;
    filter->arg = arg;
    filter->n = filter->whole = 0;
    return filter;
}

void log_filter_destroy(struct log_filter *filter)
{
    free(filter);
}

static void look_at(const struct log_filter *filter, const char *line, size_t length, size_t whole)
{
    if (length > LOG_FILTER_LINE_BYTES)
        length = LOG_FILTER_LINE_BYTES;
    for (char *const *word = filter->words; *word != NULL; word++)
        if (memmem(line, length, *word, strlen(*word)) != NULL) {
            filter->found(filter->arg, line, length, whole);
            return;
        }
}

static void begin(struct log_filter *filter, const char *bytes, size_t n)
{
    const size_t room = sizeof filter->begun - filter->n;

    memcpy(filter->begun + filter->n, bytes, n < room ? n : room);
    filter->n += n < room ? n : room;
    filter->whole += n;
}

static void end_begun(struct log_filter *filter)
{
    look_at(filter, filter->begun, filter->n, filter->whole);
    filter->n = filter->whole = 0;
}

/*
 * Add bytes to the current line, up to its end. Returns how many of the bytes belong to it, its end included.
 */
static size_t finish(struct log_filter *filter, const char *bytes, size_t n)
{
    const bool undecided =
        filter->n == filter->whole && filter->n > 0 && filter->begun[filter->n - 1] == '\r';
    size_t length, consumed, searched;

    if (undecided && bytes[0] != '\n' && bytes[0] != '\r') { /* the carriage return did end it */
        filter->n--;
        filter->whole--;
        end_begun(filter);
        return 0;
    }
    if (!line_end(bytes, n, &length, &consumed, &searched)) {
        begin(filter, bytes, n);
        return n;
    }
    begin(filter, bytes, length);
    end_begun(filter);
    return consumed;
}

void log_filter_feed(struct log_filter *filter, const char *bytes, size_t n)
{
    struct line_scan scan;
    const char *line;
    size_t length;

    if (n > 0 && filter->whole > 0) {
        const size_t taken = finish(filter, bytes, n);

        bytes += taken;
        n -= taken;
        if (filter->whole > 0)
            return;
    }
    line_scan_init(&scan, bytes, n);
    while (line_scan_next(&scan, &line, &length))
        if (length > 0 || *line == '\n')
            look_at(filter, line, length, length);
    begin(filter, scan.at, (size_t)(scan.end - scan.at));
}

void log_filter_end(struct log_filter *filter)
{
    if (filter->whole > 0)
        end_begun(filter);
}
