/*
 * Jobs as tables for a person: what `fsdprun ps`, `status` and `top` print without --json. Pure.
 */
#ifndef LAUNCHER_JOB_TABLE_H
#define LAUNCHER_JOB_TABLE_H

#include <stdio.h>

#include "launcher/table.h"

struct cJSON;

/** Print a table with a line for each object of the array (docs/operations.md, `fsdprun ps`). */
void job_table_jobs(const struct cJSON *jobs, const struct table_look *look, FILE *out);

/** Print the line of one job, without titles. */
void job_table_line(const struct cJSON *job, const struct table_look *look, FILE *out);

/** Print a job and its workers. */
void job_table_status(const struct cJSON *job, const struct table_look *look, FILE *out);

/* By which column `top` sorts ranks. The order of a key that is equal is that of the jobs and ranks. */
enum job_table_sort { JOB_TABLE_BY_RANK, JOB_TABLE_BY_STEP, JOB_TABLE_BY_MEMORY, JOB_TABLE_SORTS };

/** Returns the name of the column, as top shows it. */
const char *job_table_sort_name(enum job_table_sort sort);

/* How much of the jobs and ranks `top` shows. */
struct job_table_part {
    enum job_table_sort sort; /* the smallest step, or the most memory, comes first */
    size_t most_jobs;         /* 0: all */
    size_t first, most_ranks; /* ranks from number `first` on; 0: all */
};

/**
 * Print the jobs, and below them their ranks, as `top` shows both. A line says so where some are hidden.
 *   jobs  the objects of `fsdprun status`
 */
void job_table_top(const struct cJSON *jobs, const struct table_look *look, const struct job_table_part *part,
                   FILE *out);

/** Returns how many ranks the jobs of `status` have together. */
size_t job_table_n_ranks(const struct cJSON *jobs);

/** Print text that may come from anywhere: a control character, which could move the cursor, as '?'. */
void job_table_text(const char *text, FILE *out);

#endif
