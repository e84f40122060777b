/*
 * What is wrong with a job file, one line a problem: "FILE:LINE:COLUMN: key.path: words" for the file,
 * "ORIGIN: key.path: words" for a setting from elsewhere. The first JOB_REPORT_MAX in the order of the file
 * are kept.
 */
#ifndef JOB_REPORT_H
#define JOB_REPORT_H

#include <stdbool.h>
#include <stddef.h>

enum { JOB_REPORT_MAX = 20 };

/* Where something stands. `source` is the job file's name or another origin ("--set 1"); borrowed. */
struct job_place {
    const char *source;
    int line, column; /* from 1; 0: the source has no lines */
};

struct job_report {
    size_t n;       /* lines kept */
    size_t n_found; /* problems found: more than n when the report is full */
    bool no_memory; /* a line was lost to it */
    struct job_problem {
        struct job_place place;
        char *line;
    } problems[JOB_REPORT_MAX + 1];
};

void job_report_init(struct job_report *report);
void job_report_fini(struct job_report *report);

/** Add a problem; `path` is the key, NULL or "" when there is none. Kept in order of line and column, files
 * first. */
void job_report_add(struct job_report *report, struct job_place place, const char *path, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));

/** "train.yaml:7:12", or the source alone; control characters become '?'. */
const char *job_place_text(struct job_place place, char *out, size_t size);

#endif
