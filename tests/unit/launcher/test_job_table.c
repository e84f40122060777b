#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "launcher/job_table.h"

static char *printed(const char *json, void (*print)(const cJSON *value, FILE *out))
{
    cJSON *value = cJSON_Parse(json);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    cr_assert_not_null(value);
    print(value, out);
    fclose(out);
    cJSON_Delete(value);
    return text;
}

static void prints(const char *json, void (*print)(const cJSON *value, FILE *out), const char *want)
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
Test(job_table, a_name_moves_no_cursor_and_is_cut_between_characters)
{
    char *text = printed("[{\"job\":\"1\",\"name\":\"a\\u001b[2Jb\"},"
                         "{\"job\":\"2\",\"name\":\"1234567890123456789\\u00e9\\u00e9\"}]",
                         job_table_jobs);

    cr_assert_null(strchr(text, 0x1b));
    cr_assert_not_null(strstr(text, "a?[2Jb"));
    cr_assert_not_null(strstr(text, "1234567890123456789~"));
    free(text);
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
