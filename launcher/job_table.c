#include "launcher/job_table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

#include "launcher/json_table.h"

enum { WORD_COLUMNS = 14 };

/* The columns of a job. Those after the first N_OF_JOB are printed only with --wide. */
static const struct json_column of_job[] = {
    { "JOB", "job", JSON_TEXT },
    { "NAME", "name", JSON_NAME },
    { "STATE", "state", JSON_TEXT },
    { "NODES", "nodes", JSON_COUNT },
    { "RANKS", "ranks", JSON_COUNT },
    { "GEN", "generation", JSON_COUNT },
    { "STEP", "step", JSON_COUNT },
    { "LOSS", "loss", JSON_NUMBER },
    { "TOK/S", "tokens_per_s", JSON_RATE },
    { "RST", "restarts", JSON_COUNT },
    { "AGE", "age_s", JSON_AGE },
    { "RUN DIRECTORY", "run_dir", JSON_PATH },
};
static const struct json_column of_worker[] = {
    { "RANK", "rank", JSON_COUNT },
    { "NODE", "node", JSON_COUNT },
    { "PID", "pid", JSON_COUNT },
    { "PHASE", "phase", JSON_TEXT },
    { "STEP", "step", JSON_COUNT },
    { "MEMORY", "memory_bytes", JSON_MEMORY },
    { "GPU", "gpu", JSON_TEXT },
    { "GPU%", "gpu_percent", JSON_COUNT },
    { "GPU-MEM", "gpu_memory_bytes", JSON_MEMORY },
};
enum {
    ALL_OF_JOB = sizeof of_job / sizeof *of_job,
    N_OF_JOB = ALL_OF_JOB - 1,
    ALL_OF_WORKER = sizeof of_worker / sizeof *of_worker,
    N_OF_WORKER = 5
};

/* Printing of rows */

struct rows {
    const struct json_column *columns;
    const cJSON **of;   /* (n) the objects, one for each row */
    const cJSON **jobs; /* (n) the job of each row, for a first column with its id; NULL: no such column */
};

static void put_cell(const void *arg, size_t row, int column, char out[TABLE_CELL_BYTES])
{
    const struct rows *rows = arg;

    if (rows->jobs == NULL)
        json_cell(out, &rows->columns[column], rows->of[row]);
    else if (column == 0)
        json_cell(out, &of_job[0], rows->jobs[row]);
    else
        json_cell(out, &rows->columns[column - 1], rows->of[row]);
}

static void set_column(struct table *table, const struct json_column *column)
{
    table->titles[table->n] = column->title;
    table->shapes[table->n++] = json_shape(column->form);
}

static void print_rows(const struct rows *rows, int n_columns, size_t n_rows, bool untitled,
                       const struct table_look *look, FILE *out)
{
    struct table table = { .n_rows = n_rows, .untitled = untitled, .cell = put_cell, .arg = rows };

    if (rows->jobs != NULL)
        set_column(&table, &of_job[0]);
    for (int i = 0; i < n_columns; i++)
        set_column(&table, &rows->columns[i]);
    table_print(&table, look, out);
}

/* Prints the first `most` objects of an array as a table; 0: all. Without memory the table is empty. */
static void print_array(const cJSON *array, size_t most, const struct json_column *columns, int n_columns,
                        const struct table_look *look, FILE *out)
{
    const cJSON **of = calloc((size_t)cJSON_GetArraySize(array) + 1, sizeof(const cJSON *)), *object;
    const struct rows rows = { .columns = columns, .of = of };
    size_t n = 0;

    cJSON_ArrayForEach(object, array)
    {
        if (of != NULL && (most == 0 || n < most))
            of[n++] = object;
    }
    print_rows(&rows, n_columns, n, false, look, out);
    free(of);
}

void job_table_text(const char *text, FILE *out)
{
    char cell[TABLE_CELL_BYTES];

    table_text(cell, text);
    fputs(cell, out);
}

/* Prints what a queued job waits for, on a line of its own that is never cut. */
static void print_wait(FILE *out, const char *title, int width, const cJSON *job)
{
    const cJSON *words = cJSON_GetObjectItemCaseSensitive(job, "waits_for");

    if (!cJSON_IsString(words))
        return;
    fprintf(out, "%-*s", width, title);
    job_table_text(words->valuestring, out);
    fputc('\n', out);
}

static void print_waits(const cJSON *jobs, FILE *out)
{
    const cJSON *job;

    cJSON_ArrayForEach(job, jobs)
    {
        char title[TABLE_CELL_BYTES], id[TABLE_CELL_BYTES];

        json_cell(id, &of_job[0], job);
        snprintf(title, sizeof title, "job %.40s ", id);
        print_wait(out, title, 0, job);
    }
}

void job_table_jobs(const cJSON *jobs, const struct table_look *look, FILE *out)
{
    print_array(jobs, 0, of_job, look->wide ? ALL_OF_JOB : N_OF_JOB, look, out);
    print_waits(jobs, out);
}

void job_table_line(const cJSON *job, const struct table_look *look, FILE *out)
{
    const struct rows rows = { .columns = of_job, .of = &job };

    print_rows(&rows, look->wide ? ALL_OF_JOB : N_OF_JOB, 1, true, look, out);
}

void job_table_status(const cJSON *job, const struct table_look *look, FILE *out)
{
    static const char *const words[ALL_OF_JOB] = { "job",          "name",       "state", "nodes",
                                                   "ranks",        "generation", "step",  "loss",
                                                   "tokens per s", "restarts",   "age",   "run directory" };

    for (int i = 0; i < ALL_OF_JOB; i++) {
        char cell[TABLE_CELL_BYTES];

        json_cell(cell, &of_job[i], job);
        if (look->columns > 0 && !look->wide)
            table_cut(cell, look->columns - WORD_COLUMNS,
                      of_job[i].form == JSON_PATH ? TABLE_PATH : TABLE_NAME, look->ascii);
        fprintf(out, "%-*s%s\n", WORD_COLUMNS, words[i], cell);
    }
    print_wait(out, "queued", WORD_COLUMNS, job);
    fputc('\n', out);
    print_array(cJSON_GetObjectItemCaseSensitive(job, "workers"), 0, of_worker,
                look->wide ? ALL_OF_WORKER : N_OF_WORKER, look, out);
}

/* A table of the ranks of several jobs */

struct rank {
    const cJSON *job, *worker;
    double key;
    size_t number;
};

static double key_of(const cJSON *worker, enum job_table_sort sort)
{
    const cJSON *value =
        cJSON_GetObjectItemCaseSensitive(worker, sort == JOB_TABLE_BY_STEP ? "step" : "memory_bytes");

    if (sort == JOB_TABLE_BY_RANK || !cJSON_IsNumber(value))
        return sort == JOB_TABLE_BY_RANK ? 0 : HUGE_VAL; /* a rank without this value comes last */
    return sort == JOB_TABLE_BY_STEP ? value->valuedouble : -value->valuedouble;
}

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *one = a, *other = b;

    if (one->key != other->key)
        return one->key < other->key ? -1 : 1;
    return (one->number > other->number) - (one->number < other->number);
}

const char *job_table_sort_name(enum job_table_sort sort)
{
    static const char *const names[JOB_TABLE_SORTS] = { "rank", "step", "memory" };

    return names[sort];
}

size_t job_table_n_ranks(const cJSON *jobs)
{
    const cJSON *job;
    size_t n = 0;

    cJSON_ArrayForEach(job, jobs)
    {
        n += (size_t)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(job, "workers"));
    }
    return n;
}

static void collect(const cJSON *jobs, enum job_table_sort sort, struct rank *ranks)
{
    const cJSON *job, *worker;
    size_t n = 0;

    cJSON_ArrayForEach(job, jobs)
    {
        cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(job, "workers"))
        {
            ranks[n] =
                (struct rank){ .job = job, .worker = worker, .key = key_of(worker, sort), .number = n };
            n++;
        }
    }
    qsort(ranks, n, sizeof *ranks, compare_ranks);
}

void job_table_top(const cJSON *jobs, const struct table_look *look, const struct job_table_part *part,
                   FILE *out)
{
    const size_t n_jobs = (size_t)cJSON_GetArraySize(jobs), all = job_table_n_ranks(jobs),
                 from = part->first < all ? part->first : all,
                 n = part->most_ranks > 0 && all - from > part->most_ranks ? part->most_ranks : all - from;
    struct rank *ranks = calloc(all + 1, sizeof *ranks);
    const cJSON **rows = calloc(2 * (all + 1), sizeof(const cJSON *));
    const struct rows of = { .columns = of_worker, .of = rows, .jobs = rows + all + 1 };

    print_array(jobs, part->most_jobs, of_job, N_OF_JOB, look, out);
    if (part->most_jobs > 0 && n_jobs > part->most_jobs)
        fprintf(out, "and %zu more jobs\n", n_jobs - part->most_jobs);
    if (ranks != NULL && rows != NULL) {
        collect(jobs, part->sort, ranks);
        for (size_t i = 0; i < n; i++) {
            of.of[i] = ranks[from + i].worker;
            of.jobs[i] = ranks[from + i].job;
        }
        fputc('\n', out);
        print_rows(&of, ALL_OF_WORKER, n, false, look, out);
        if (n < all)
            fprintf(out, "ranks %zu to %zu of %zu\n", from + 1, from + n, all);
    }
    free(ranks);
    free(rows);
}
