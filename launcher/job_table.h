/*
 * Jobs as tables for a person: what `fsdprun ps` and `status` print without --json. Pure.
 */
#ifndef LAUNCHER_JOB_TABLE_H
#define LAUNCHER_JOB_TABLE_H

#include <stdio.h>

struct cJSON;

/** Print a table with a line for each object of the array (CONTRACT.md, `fsdprun ps`). */
void job_table_jobs(const struct cJSON *jobs, FILE *out);

/** Print a job and its workers. */
void job_table_status(const struct cJSON *job, FILE *out);

/** Print text that may come from anywhere: a control character, which could move the cursor, as '?'. */
void job_table_text(const char *text, FILE *out);

#endif
