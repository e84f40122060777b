/* Prints jobs as tables: what `fsdprun ps`, `status` and `top` show without --json. Pure. */
#ifndef LAUNCHER_JOB_TABLE_H
#define LAUNCHER_JOB_TABLE_H

#include <stdio.h>

#include "launcher/table.h"

struct cJSON;

/** Prints a table with one line for each job of the array (docs/operations.md, `fsdprun ps`). */
void job_table_jobs(const struct cJSON *jobs, const struct table_look *look, FILE *out);

/** Prints the line of one job, without column titles. */
void job_table_line(const struct cJSON *job, const struct table_look *look, FILE *out);

/** Prints a job's values one below the other, and then the table of its workers. */
void job_table_status(const struct cJSON *job, const struct table_look *look, FILE *out);

/* By which column `top` sorts ranks. Ranks with equal values keep the order of their jobs and numbers. */
enum job_table_sort { JOB_TABLE_BY_RANK, JOB_TABLE_BY_STEP, JOB_TABLE_BY_MEMORY, JOB_TABLE_SORTS };

/** Returns the name of the sort order, as `top` shows it. */
const char *job_table_sort_name(enum job_table_sort sort);

/* Which of the jobs and ranks `top` shows. */
struct job_table_part {
    enum job_table_sort sort; /* smallest step first; most memory first */
    size_t most_jobs;         /* how many jobs are shown; 0: all */
    /* at most most_ranks ranks are shown, from number `first` on; most_ranks 0: all */
    size_t first, most_ranks;
};

/**
 * Prints the table of jobs, and below it the table of their ranks, as `top` shows them. If `part` hides some,
 * a line says so.
 *   jobs  the objects of `fsdprun status`
 */
void job_table_top(const struct cJSON *jobs, const struct table_look *look, const struct job_table_part *part,
                   FILE *out);

/** Returns the number of ranks of all `jobs` together. */
size_t job_table_n_ranks(const struct cJSON *jobs);

/**
 * Prints text whose source is not trusted. Each control character, which could move the cursor, becomes '?'.
 */
void job_table_text(const char *text, FILE *out);

#endif
