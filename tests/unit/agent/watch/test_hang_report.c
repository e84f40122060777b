#include "agent/watch/hang_report.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/watch/hang_table.h"

static struct hang_row rows[64];

/* Rank `culprit` computes and is silent; all others are in the next collective. */
static struct hang_report report_of(int n_rows, int culprit)
{
    for (int i = 0; i < n_rows; i++) {
        struct hang_row *row = &rows[i];

        *row = (struct hang_row){ .rank = i,
                                  .pid = 100 + i,
                                  .culprit = i == culprit,
                                  .waits = i != culprit,
                                  .host = "n1",
                                  .phase = i == culprit ? "backward" : "collective",
                                  .step = 128,
                                  .silent_s = 10 + i,
                                  .looked = true };
        row->collective.sequence = i == culprit ? 911 : 912;
        row->collective.ended_s_ago = i == culprit ? 10.3 : (double)NAN;
        strcpy(row->collective.group, "world");
        strcpy(row->collective.kind, i == culprit ? "all_gather" : "reduce_scatter");
        row->pass = i == culprit ? NULL : "backward";
        strcpy(row->layer, i == culprit ? "layers.5.w1" : "layers.6");
        row->look.state = 'S';
        strcpy(row->look.syscall, "futex");
        strcpy(row->look.frames[0], "futex_wait_queue");
        strcpy(row->look.frames[1], "do_futex");
        row->look.n_frames = 2;
        row->look.n_threads = 5;
    }
    return (struct hang_report){ .bound_s = 10, .n_rows = n_rows, .rows = rows };
}

/* The rest of the report as the coordinator keeps it, and its lines. */
static cJSON *taken(struct hang_report *report, char lines[HANG_PRINT_BYTES])
{
    struct hang_table table = { 0 };
    char *json, *kept;
    cJSON *object;

    hang_report_sort(report);
    json = hang_report_json(report);
    cr_assert_not_null(json);
    cr_assert_leq(strlen(json), HANG_REPORT_BYTES);
    kept = hang_table_take(&table, json, strlen(json), 0, lines);
    cr_assert_not_null(kept, "%s", json);
    object = cJSON_Parse(kept);
    cr_assert_not_null(object, "%s", kept);
    free(json);
    free(kept);
    return object;
}

static const char *text_of(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

Test(hang_report, ranks_that_show_the_same_are_one_row_after_that_of_the_culprit)
{
    struct hang_report report = report_of(8, 3);
    char lines[HANG_PRINT_BYTES];
    cJSON *object = taken(&report, lines), *list = cJSON_GetObjectItem(object, "rows"),
          *culprit = cJSON_GetArrayItem(list, 0), *others = cJSON_GetArrayItem(list, 1);

    cr_assert_eq(cJSON_GetArraySize(list), 2);
    cr_assert_str_eq(text_of(culprit, "ranks"), "3");
    cr_assert(cJSON_IsTrue(cJSON_GetObjectItem(culprit, "culprit")));
    cr_assert_str_eq(text_of(others, "ranks"), "0-2,4-7");
    cr_assert_float_eq(cJSON_GetObjectItem(others, "silent_s")->valuedouble, 17.0, 1e-6);
    cr_assert_null(cJSON_GetObjectItem(object, "details"));
    cr_assert_null(cJSON_GetObjectItem(culprit, "shown"));
    cr_assert_str_eq(
        lines, "fsdprun: rank 3 made no progress for 13.0 s; 7 ranks wait in reduce_scatter #912 of world\n"
               "  ranks     where                                      step    silent  state  waits in\n"
               "  3         backward layers.5.w1                        128    13.0 s  S      futex\n"
               "  0-2,4-7   collective layers.6, backward               128    17.0 s  S      futex\n"
               "  rank 3: all_gather #911 of world ended 10.3 s ago, then none\n"
               "  kernel  futex_wait_queue < do_futex\n");
    cJSON_Delete(object);
}

/* Every rank another row, with all that a row can hold. */
Test(hang_report, no_number_of_different_rows_makes_it_longer_than_it_may_be)
{
    struct hang_report report = report_of(64, 63);
    char lines[HANG_PRINT_BYTES];
    int n_lines = 0;
    cJSON *object;

    for (int i = 0; i < 64; i++) {
        struct process_look *look = &rows[i].look;

        snprintf(look->wchan, sizeof look->wchan, "wait_%d", i);
        memset(look->file, '\001', sizeof look->file - 1);
        look->n_frames = PROCESS_LOOK_FRAMES;
        for (int k = 0; k < PROCESS_LOOK_FRAMES; k++)
            memset(look->frames[k], '\001', sizeof look->frames[k] - 1);
        look->frames_refused = true;
    }
    object = taken(&report, lines);

    cr_assert_gt(cJSON_GetObjectItem(object, "omitted_rows")->valueint, 0);
    for (const char *at = lines; *at != '\0'; at++)
        n_lines += *at == '\n';
    cr_assert_leq(n_lines, HANG_LINES);
    cr_assert_not_null(strstr(lines, "  more rows: "), "%s", lines);
    cJSON_Delete(object);
}

Test(hang_report, what_is_not_known_is_null_and_its_reason_is_listed)
{
    struct hang_report report = report_of(1, 0);
    char lines[HANG_PRINT_BYTES];
    cJSON *object, *row;

    rows[0] = (struct hang_row){ .rank = 0, .culprit = true, .step = -1 };
    object = taken(&report, lines);
    row = cJSON_GetArrayItem(cJSON_GetObjectItem(object, "rows"), 0);

    for (const char *const *key =
             (const char *const[]){ "state", "wchan", "phase", "step", "collective", NULL };
         *key != NULL; key++)
        cr_assert(cJSON_IsNull(cJSON_GetObjectItem(row, *key)), "%s", *key);
    cr_assert_str_eq(cJSON_GetArrayItem(cJSON_GetObjectItem(row, "missing"), 0)->valuestring,
                     "/proc did not answer in time");
    cJSON_Delete(object);
}

/* The longest row that can be begins at the last place where one may. */
Test(hang_report, a_node_without_the_culprit_says_less)
{
    struct hang_report report = report_of(64, -1);
    char *json;

    for (int i = 0; i < 64; i++)
        snprintf(rows[i].look.wchan, sizeof rows[i].look.wchan, "wait_%d", i);
    hang_report_sort(&report);
    json = hang_report_json(&report);

    cr_expect(strlen(json) > 8192 && strlen(json) < 10000, "%zu bytes", strlen(json));
    cr_expect_null(strstr(json, "details"));
    cr_expect_null(strstr(json, "\"omitted_rows\": 0"));
    free(json);
}

Test(hang_report, the_python_line_of_a_rank_is_its_place_and_its_stack_is_printed)
{
    static const char text[] = "Current thread 0x1 (most recent call first):\n"
                               "  File \"/lib/python3/x.py\", line 1 in acquire\n"
                               "  File \"/w/a.py\", line 7 in step\n";
    static struct python_stack stack;
    struct hang_report report = report_of(3, 1);
    char lines[HANG_PRINT_BYTES];
    cJSON *object;

    cr_assert(python_stack_take(&stack, text, sizeof text - 1, "/w"));
    for (int i = 0; i < 3; i++) {
        rows[i].phase = rows[i].pass = NULL;
        rows[i].layer[0] = '\0';
    }
    rows[1].python = &stack;
    rows[2].python_missing = "python: why";
    object = taken(&report, lines);
    const cJSON *listed = cJSON_GetObjectItem(object, "rows"), *python;

    python = cJSON_GetObjectItem(cJSON_GetArrayItem(listed, 0), "python");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(python, "line")), "a.py:7");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(python, "function")), "step");
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(python, "frames")), 2);
    cr_expect(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetArrayItem(listed, 1), "python")));
    cr_expect(strstr(lines, "a.py:7 in step  ") != NULL &&
                  strstr(lines, "  python  a.py:7 in step\n") != NULL,
              "%s", lines);
    cJSON_Delete(object);
}
