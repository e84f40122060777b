#include "launcher/job_table.h"

#include <cjson/cJSON.h>

#include "launcher/table.h"

static const struct table_column of_job[] = {
    { "JOB", "job", TABLE_TEXT },
    { "NAME", "name", TABLE_TEXT },
    { "STATE", "state", TABLE_TEXT },
    { "NODES", "nodes", TABLE_COUNT },
    { "RANKS", "ranks", TABLE_COUNT },
    { "GEN", "generation", TABLE_COUNT },
    { "STEP", "step", TABLE_COUNT },
    { "LOSS", "loss", TABLE_NUMBER },
    { "TOK/S", "tokens_per_s", TABLE_RATE },
    { "RST", "restarts", TABLE_COUNT },
    { "AGE", "age_s", TABLE_AGE },
};
static const struct table_column of_worker[] = {
    { "RANK", "rank", TABLE_COUNT },  { "NODE", "node", TABLE_COUNT }, { "PID", "pid", TABLE_COUNT },
    { "PHASE", "phase", TABLE_TEXT }, { "STEP", "step", TABLE_COUNT },
};
enum { N_OF_JOB = sizeof of_job / sizeof *of_job, N_OF_WORKER = sizeof of_worker / sizeof *of_worker };

void job_table_text(const char *text, FILE *out)
{
    for (const char *c = text; *c != '\0'; c++)
        fputc((unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c, out);
}

/* For what a queued job waits, on a line of its own, however long it is. */
static void print_wait(FILE *out, const char *title, int width, const cJSON *job)
{
    const cJSON *words = cJSON_GetObjectItemCaseSensitive(job, "waits_for");

    if (!cJSON_IsString(words))
        return;
    fprintf(out, "%-*s", width, title);
    job_table_text(words->valuestring, out);
    fputc('\n', out);
}

void job_table_jobs(const cJSON *jobs, FILE *out)
{
    const cJSON *job;

    table_print(out, of_job, N_OF_JOB, jobs);
    cJSON_ArrayForEach(job, jobs)
    {
        char title[TABLE_CELL_BYTES], id[TABLE_CELL_BYTES];

        table_cell(id, &of_job[0], job);
        snprintf(title, sizeof title, "job %.40s ", id);
        print_wait(out, title, 0, job);
    }
}

void job_table_status(const cJSON *job, FILE *out)
{
    static const char *const words[] = { "job",  "name", "state",        "nodes",    "ranks", "generation",
                                         "step", "loss", "tokens per s", "restarts", "age" };
    const cJSON *run_dir = cJSON_GetObjectItemCaseSensitive(job, "run_dir");

    for (int i = 0; i < N_OF_JOB; i++) {
        char cell[TABLE_CELL_BYTES];

        table_cell(cell, &of_job[i], job);
        fprintf(out, "%-14s%s\n", words[i], cell);
    }
    fprintf(out, "%-14s%s\n", "run directory", cJSON_IsString(run_dir) ? run_dir->valuestring : "-");
    print_wait(out, "queued", 14, job);
    fputc('\n', out);
    table_print(out, of_worker, N_OF_WORKER, cJSON_GetObjectItemCaseSensitive(job, "workers"));
}
