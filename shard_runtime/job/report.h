/*
 * The list of problems in a job file, one line each. A problem in the file reads "FILE:LINE:COLUMN: key.path:
 * PROBLEM". A problem in a setting from elsewhere reads "ORIGIN: key.path: PROBLEM". The report keeps the
 * first JOB_REPORT_MAX problems, in the order of the file.
 */
#ifndef JOB_REPORT_H
#define JOB_REPORT_H

#include <stdbool.h>
#include <stddef.h>

enum { JOB_REPORT_MAX = 20 };

/*
 * The position of a value or a problem. `source` is borrowed: the job file's name or another origin ("--set
 * 1").
 */
struct job_place {
    const char *source;
    int line, column; /* counted from 1; 0: the source has no lines */
};

struct job_report {
    size_t n;       /* number of lines kept */
    size_t n_found; /* number of problems found; more than n if the report is full */
    bool no_memory; /* true if a line was lost because memory ran out */
    struct job_problem {
        struct job_place place;
        char *line;
    } problems[JOB_REPORT_MAX + 1];
};

/** Makes the report empty. */
void job_report_init(struct job_report *report);
/** Frees all lines and makes the report empty. */
void job_report_fini(struct job_report *report);

/**
 * Adds a problem. `path` is the key, or NULL or "" if there is none. The report sorts problems by line and
 * column; those of settings from elsewhere come after those of the file.
 */
void job_report_add(struct job_report *report, struct job_place place, const char *path, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));

/**
 * Writes a place, such as "train.yaml:7:12" or only the source, to `out`, and returns `out`. Control
 * characters become '?'.
 */
const char *job_place_text(struct job_place place, char *out, size_t size);

#endif
