#include "launcher/job_table.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { CELL_BYTES = 64, MOST_COLUMNS = 12, NAME_COLUMNS = 20 };

/* How the value of a column is written. */
enum form { FORM_TEXT, FORM_COUNT, FORM_LOSS, FORM_RATE, FORM_AGE };

struct column {
    const char *title, *key;
    enum form form;
};

static const struct column of_job[] = {
    { "JOB", "job", FORM_TEXT },
    { "NAME", "name", FORM_TEXT },
    { "STATE", "state", FORM_TEXT },
    { "NODES", "nodes", FORM_COUNT },
    { "RANKS", "ranks", FORM_COUNT },
    { "GEN", "generation", FORM_COUNT },
    { "STEP", "step", FORM_COUNT },
    { "LOSS", "loss", FORM_LOSS },
    { "TOK/S", "tokens_per_s", FORM_RATE },
    { "RST", "restarts", FORM_COUNT },
    { "AGE", "age_s", FORM_AGE },
};
static const struct column of_worker[] = {
    { "RANK", "rank", FORM_COUNT },  { "NODE", "node", FORM_COUNT }, { "PID", "pid", FORM_COUNT },
    { "PHASE", "phase", FORM_TEXT }, { "STEP", "step", FORM_COUNT },
};
enum { N_OF_JOB = sizeof of_job / sizeof *of_job, N_OF_WORKER = sizeof of_worker / sizeof *of_worker };

static void write_rate(char out[CELL_BYTES], double rate)
{
    if (rate < 999.5)
        snprintf(out, CELL_BYTES, "%.0f", rate);
    else if (rate < 999.5e3)
        snprintf(out, CELL_BYTES, "%.3gk", rate / 1e3);
    else
        snprintf(out, CELL_BYTES, "%.3gM", rate / 1e6);
}

/* The two largest units: "12s", "3m05s", "2h11m", "4d03h". */
static void write_age(char out[CELL_BYTES], double age_s)
{
    const uint64_t s = age_s >= 0 && age_s < 1e12 ? (uint64_t)age_s : 0;

    if (s < 60)
        snprintf(out, CELL_BYTES, "%" PRIu64 "s", s);
    else if (s < 3600)
        snprintf(out, CELL_BYTES, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, CELL_BYTES, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(out, CELL_BYTES, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
}

/* A control character in a name could move the cursor of who lists it. */
static void write_text(char out[CELL_BYTES], const char *text)
{
    snprintf(out, CELL_BYTES, "%s", text);
    for (char *c = out; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    if (strlen(out) > NAME_COLUMNS) {
        size_t n = NAME_COLUMNS - 1;

        while (n > 0 && ((unsigned char)out[n] & 0xc0) == 0x80) /* within a character of UTF-8 */
            n--;
        strcpy(out + n, "~");
    }
}

static void write_cell(char out[CELL_BYTES], const struct column *column, const cJSON *row)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(row, column->key);

    snprintf(out, CELL_BYTES, "-");
    if (column->form == FORM_TEXT && cJSON_IsString(value))
        write_text(out, value->valuestring);
    if (column->form == FORM_TEXT || !cJSON_IsNumber(value))
        return;
    if (column->form == FORM_COUNT)
        snprintf(out, CELL_BYTES, "%.0f", value->valuedouble);
    else if (column->form == FORM_LOSS)
        snprintf(out, CELL_BYTES, "%.4g", value->valuedouble);
    else if (column->form == FORM_RATE)
        write_rate(out, value->valuedouble);
    else
        write_age(out, value->valuedouble);
}

/* Texts to the left, numbers to the right, two spaces between columns, none after the last text. */
static void print_line(FILE *out, const struct column *columns, int n, char cells[][CELL_BYTES],
                       const int *widths)
{
    for (int i = 0; i < n; i++) {
        const bool left = columns[i].form == FORM_TEXT;

        fprintf(out, "%s%*s%s", i == 0 ? "" : " ", left ? -(i == n - 1 ? 0 : widths[i]) : widths[i], cells[i],
                i == n - 1 ? "\n" : "");
    }
}

static void print_table(FILE *out, const struct column *columns, int n, const cJSON *rows)
{
    char cells[MOST_COLUMNS][CELL_BYTES];
    int widths[MOST_COLUMNS];
    const cJSON *row;

    for (int i = 0; i < n; i++) {
        snprintf(cells[i], CELL_BYTES, "%s", columns[i].title);
        widths[i] = (int)strlen(cells[i]);
        cJSON_ArrayForEach(row, rows)
        {
            char cell[CELL_BYTES];

            write_cell(cell, &columns[i], row);
            if ((int)strlen(cell) > widths[i])
                widths[i] = (int)strlen(cell);
        }
    }
    print_line(out, columns, n, cells, widths);
    cJSON_ArrayForEach(row, rows)
    {
        for (int i = 0; i < n; i++)
            write_cell(cells[i], &columns[i], row);
        print_line(out, columns, n, cells, widths);
    }
}

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

    print_table(out, of_job, N_OF_JOB, jobs);
    cJSON_ArrayForEach(job, jobs)
    {
        char title[CELL_BYTES], id[CELL_BYTES];

        write_cell(id, &of_job[0], job);
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
        char cell[CELL_BYTES];

        write_cell(cell, &of_job[i], job);
        fprintf(out, "%-14s%s\n", words[i], cell);
    }
    fprintf(out, "%-14s%s\n", "run directory", cJSON_IsString(run_dir) ? run_dir->valuestring : "-");
    print_wait(out, "queued", 14, job);
    fputc('\n', out);
    print_table(out, of_worker, N_OF_WORKER, cJSON_GetObjectItemCaseSensitive(job, "workers"));
}
