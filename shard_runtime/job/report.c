#include "shard_runtime/job/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void job_report_init(struct job_report *report)
{
    memset(report, 0, sizeof *report);
}

void job_report_fini(struct job_report *report)
{
    for (size_t i = 0; i < report->n; i++)
        free(report->problems[i].line);
    job_report_init(report);
}

const char *job_place_text(struct job_place place, char *out, size_t size)
{
    if (place.line > 0)
        snprintf(out, size, "%s:%d:%d", place.source, place.line, place.column);
    else
        snprintf(out, size, "%s", place.source);
    for (char *c = out; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return out;
}

/*
 * Returns true if `a` comes before `b`. Places in files come first; settings from elsewhere keep the order in
 * which they were found.
 */
static bool stands_before(struct job_place a, struct job_place b)
{
    if ((a.line > 0) != (b.line > 0))
        return a.line > 0;
    return a.line != b.line ? a.line < b.line : a.column < b.column;
}

void job_report_add(struct job_report *report, struct job_place place, const char *path, const char *format,
                    ...)
{
    char where[4500], words[600];
    struct job_problem problem = { .place = place };
    va_list args;
    size_t at;

    va_start(args, format);
    (void)vsnprintf(words, sizeof words, format, args);
    va_end(args);
    job_place_text(place, where, sizeof where);
    report->n_found++;
    if (asprintf(&problem.line, "%s: %s%s%s", where, path == NULL ? "" : path,
                 path == NULL || *path == '\0' ? "" : ": ", words) < 0) {
        report->no_memory = true;
        return;
    }
    for (at = report->n; at > 0 && stands_before(place, report->problems[at - 1].place); at--)
        report->problems[at] = report->problems[at - 1];
    report->problems[at] = problem;
    if (report->n < JOB_REPORT_MAX)
        report->n++;
    else
        free(report->problems[JOB_REPORT_MAX].line);
}
