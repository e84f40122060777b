#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/job_table.h"

typedef void (*print_function)(const cJSON *value, const struct table_look *look, FILE *out);

static char *printed_in(const char *json, const struct table_look *look, print_function print)
{
    cJSON *value = cJSON_Parse(json);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    cr_assert_not_null(value);
    print(value, look, out);
    fclose(out);
    cJSON_Delete(value);
    return text;
}

static char *printed(const char *json, print_function print)
{
    return printed_in(json, &(struct table_look){ 0 }, print);
}

static void prints(const char *json, print_function print, const char *want)
{
    char *text = printed(json, print);

    cr_assert(eq(str, text, (char *)want));
    free(text);
}

Test(job_table, without_jobs_has_its_titles)
{
    prints("[]", job_table_jobs, "JOB NAME STATE NODES RANKS GEN STEP LOSS TOK/S RST AGE\n");
}

Test(job_table, columns_are_as_wide_as_their_values)
{
    prints("[{\"job\":\"7\",\"name\":\"a\",\"state\":\"running\",\"nodes\":1,\"ranks\":8,\"generation\":0,"
           "\"step\":1547,\"loss\":1.30123,\"tokens_per_s\":22012.4,\"restarts\":0,\"age_s\":7.9},"
           "{\"job\":\"14178\",\"name\":\"long one\",\"state\":null,\"nodes\":null,\"ranks\":null,"
           "\"generation\":null,\"step\":null,\"loss\":null,\"tokens_per_s\":null,\"restarts\":null,"
           "\"age_s\":null}]",
           job_table_jobs,
           "JOB   NAME     STATE   NODES RANKS GEN STEP  LOSS TOK/S RST AGE\n"
           "7     a        running     1     8   0 1547 1.301   22k   0  7s\n"
           "14178 long one -           -     -   -    -     -     -   -   -\n");
}

Test(job_table, a_queued_job_says_for_what_it_waits)
{
    prints("[{\"job\":\"7\",\"name\":\"a\",\"state\":\"queued\",\"waits_for\":"
           "\"waits for 2 GPUs: job \\u001bb (9) holds 0-2\"}]",
           job_table_jobs,
           "JOB NAME STATE  NODES RANKS GEN STEP LOSS TOK/S RST AGE\n"
           "7   a    queued     -     -   -    -    -     -   -   -\n"
           "job 7 waits for 2 GPUs: job ?b (9) holds 0-2\n");
}

/* A terminal would follow an escape sequence in a name. */
Test(job_table, a_name_moves_no_cursor)
{
    char *text = printed("[{\"job\":\"1\",\"name\":\"a\\u001b[2Jb\\u009bm\"}]", job_table_jobs);

    cr_assert_null(strchr(text, 0x1b));
    cr_assert_not_null(strstr(text, "a?[2Jb?m"));
    free(text);
}

/* The columns of the widest line. */
static int columns_of(char *text)
{
    int most = 0;

    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        most = table_width(line) > most ? table_width(line) : most;
    return most;
}

static const char crowded[] =
    "[{\"job\":\"1234567\",\"name\":\"a-name-that-is-far-too-long-for-eighty-columns-of-a-terminal\","
    "\"state\":\"restarting\",\"nodes\":128,\"ranks\":1024,\"generation\":12,\"step\":1234567,"
    "\"loss\":1.30123,\"tokens_per_s\":1220124,\"restarts\":10,\"age_s\":360000,"
    "\"run_dir\":\"/a/path/that/is/long/too/runs/experiment-17\",\"workers\":[{\"rank\":1023,\"node\":127,"
    "\"pid\":4194304,\"phase\":\"collective\",\"step\":1234567,\"memory_bytes\":123456789012,"
    "\"gpu\":\"0000:3b:00.0\",\"gpu_percent\":100,\"gpu_memory_bytes\":85899345920}]}]";

static void top(const cJSON *value, const struct table_look *look, FILE *out)
{
    job_table_top(value, look, &(struct job_table_part){ 0 }, out);
}

Test(job_table, the_fullest_lines_fit_a_terminal_and_only_names_are_cut)
{
    static const int terminals[] = { 80, 120, 40, 1 };

    for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++) {
        const struct table_look look = { .columns = terminals[i], .ascii = i % 2 == 1 };
        char *jobs = printed_in(crowded, &look, job_table_jobs), *ranks = printed_in(crowded, &look, top);

        if (terminals[i] >= 80) {
            cr_expect_not_null(strstr(jobs, "1234567 a-name-"), "%s", jobs);
            cr_expect_not_null(strstr(jobs, " 1234567 1.301 1.22M  10 4d04h"), "%s", jobs);
            cr_expect_not_null(strstr(ranks, " 1234567   115G 0000:3b:00.0  100     80G"), "%s", ranks);
        }
        if (terminals[i] == 80)
            cr_expect_not_null(strstr(jobs, "\xe2\x80\xa6"), "the name is cut: %s", jobs);
        if (terminals[i] == 120)
            cr_expect_not_null(strstr(jobs, "~"), "as this terminal shows it: %s", jobs);
        cr_expect(le(int, columns_of(jobs), terminals[i]));
        cr_expect(le(int, columns_of(ranks), terminals[i]));
        free(jobs);
        free(ranks);
    }
}

Test(job_table, wide_has_the_run_directory_and_cuts_nothing)
{
    const struct table_look look = { .columns = 80, .wide = true };
    char *text = printed_in(crowded, &look, job_table_jobs);

    cr_assert_not_null(strstr(text, "RUN DIRECTORY"));
    cr_assert_not_null(strstr(text, "of-a-terminal restarting"));
    cr_assert_not_null(strstr(text, "/a/path/that/is/long/too/runs/experiment-17\n"));
    free(text);
}

static const char two_jobs[] =
    "[{\"job\":\"7\",\"workers\":[{\"rank\":0,\"step\":9,\"memory_bytes\":1048576},"
    "{\"rank\":1,\"step\":8,\"memory_bytes\":3145728}]},"
    "{\"job\":\"8\",\"workers\":[{\"rank\":0,\"step\":null,\"memory_bytes\":2097152}]}]";

/* The ranks in their order: "7:1 7:0 8:0". */
static void ranks_are(struct job_table_part part, const char *want)
{
    cJSON *jobs = cJSON_Parse(two_jobs);
    char *text = NULL, *line, got[64] = "", job[8];
    size_t size;
    int rank;
    FILE *out = open_memstream(&text, &size);

    job_table_top(jobs, &(struct table_look){ 0 }, &part, out);
    fclose(out);
    line = strstr(text, "\nJOB RANK");
    cr_assert_not_null(line, "%s", text);
    for (line = strchr(line + 1, '\n') + 1; *line != 'r' && sscanf(line, "%7s %d", job, &rank) == 2;
         line = strchr(line, '\n') + 1)
        snprintf(got + strlen(got), sizeof got - strlen(got), " %s:%d", job, rank);
    cr_expect(eq(str, got, (char *)want));
    free(text);
    cJSON_Delete(jobs);
}

Test(job_table, ranks_are_sorted_and_what_does_not_say_comes_last)
{
    ranks_are((struct job_table_part){ .sort = JOB_TABLE_BY_RANK }, " 7:0 7:1 8:0");
    ranks_are((struct job_table_part){ .sort = JOB_TABLE_BY_STEP }, " 7:1 7:0 8:0");
    ranks_are((struct job_table_part){ .sort = JOB_TABLE_BY_MEMORY }, " 7:1 8:0 7:0");
}

Test(job_table, a_part_of_the_ranks_is_shown_and_the_rest_is_counted)
{
    const struct job_table_part part = { .first = 1, .most_ranks = 1, .most_jobs = 1 };
    cJSON *jobs = cJSON_Parse(two_jobs);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    ranks_are(part, " 7:1");
    job_table_top(jobs, &(struct table_look){ 0 }, &part, out);
    fclose(out);
    cr_assert_not_null(strstr(text, "and 1 more jobs\n"), "%s", text);
    cr_assert_not_null(strstr(text, "ranks 2 to 2 of 3\n"), "%s", text);
    free(text);
    cJSON_Delete(jobs);
}

Test(job_table, ages_have_their_two_largest_units)
{
    static const struct {
        const char *age_s, *want;
    } cases[] = {
        { "0", " 0s\n" },        { "59.9", "59s\n" }, { "185", "3m05s\n" }, { "7865", "2h11m\n" },
        { "356400", "4d03h\n" }, { "-5", " 0s\n" },   { "1e300", " 0s\n" }, { "86399", "23h59m\n" }
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[64], *text;

        snprintf(json, sizeof json, "[{\"age_s\": %s}]", cases[i].age_s);
        text = printed(json, job_table_jobs);
        cr_assert_not_null(strstr(text, cases[i].want), "%s: %s", cases[i].age_s, text);
        free(text);
    }
}

Test(job_table, status_has_the_workers)
{
    prints("{\"job\":\"7\",\"name\":\"a\",\"state\":\"running\",\"nodes\":1,\"ranks\":2,\"generation\":0,"
           "\"step\":3,\"loss\":2,\"tokens_per_s\":1500000,\"restarts\":1,\"age_s\":60,\"run_dir\":\"/r/a\","
           "\"workers\":[{\"rank\":0,\"node\":0,\"pid\":100,\"phase\":\"forward\",\"step\":3},"
           "{\"rank\":1,\"node\":0,\"pid\":99,\"phase\":null,\"step\":null}]}",
           job_table_status,
           "job           7\n"
           "name          a\n"
           "state         running\n"
           "nodes         1\n"
           "ranks         2\n"
           "generation    0\n"
           "step          3\n"
           "loss          2\n"
           "tokens per s  1.5M\n"
           "restarts      1\n"
           "age           1m00s\n"
           "run directory /r/a\n"
           "\n"
           "RANK NODE PID PHASE   STEP\n"
           "   0    0 100 forward    3\n"
           "   1    0  99 -          -\n");
}
