#include "agent/watch/hang_table.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(ranks, host, where, silent)                                                                      \
    "{\"ranks\": \"" ranks "\", \"host\": \"" host "\", \"silent_s\": " silent ", \"shown\": [\"" where      \
    "\", \"7\", \"S\", \"futex\"]}"

/* The culprit is rank 3, on a node of its own. */
static const char of_culprit[] = "{\"ranks\": \"3\", \"silent_s\": 12.5, \"bound_s\": 10, \"waiting\": 1, "
                                 "\"omitted_rows\": 2, \"waits_in\": null, "
                                 "\"rows\": [" ROW("3", "n1", "backward", "12.5") ", " ROW(
                                     "2", "n1", "collective", "11") "], \"details\": [\"  kernel  a < b\"]}";

static struct hang_table table;

static cJSON *taken(const char *json, int n_missing, char lines[HANG_PRINT_BYTES])
{
    char *kept = hang_table_take(&table, json, strlen(json), n_missing, lines);
    cJSON *object = cJSON_Parse(kept);

    cr_assert_not_null(object, "%s", kept);
    free(kept);
    return object;
}

static void add(const char *json)
{
    hang_table_add(&table, json, strlen(json));
}

static int number(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItem(object, key)->valueint;
}

Test(hang_table, ranks_of_all_nodes_are_in_one_table)
{
    char lines[HANG_PRINT_BYTES];
    cJSON *object, *rows;

    add("{\"waiting\": 2, \"omitted_rows\": 1, \"waits_in\": \"all_gather #9 of world\", \"rows\": [" ROW(
        "0-1", "n0", "collective", "13.5") "]}");
    add("{\"waiting\": 2, \"rows\": [" ROW("4,6", "n2", "collective", "11") ", " ROW("5", "n2", "save",
                                                                                     "1") "]}");
    object = taken(of_culprit, 0, lines);
    rows = cJSON_GetObjectItem(object, "rows");

    cr_expect_str_eq(
        lines, "fsdprun: rank 3 made no progress for 12.5 s; 5 ranks wait in all_gather #9 of world\n"
               "  ranks     where                                      step    silent  state  waits in\n"
               "  3         backward                                      7    12.5 s  S      futex\n"
               "  0-2,4,6   collective                                    7    13.5 s  S      futex\n"
               "  5         save                                          7     1.0 s  S      futex\n"
               "  more rows: 3 were left out\n"
               "  kernel  a < b\n");
    cr_expect_eq(cJSON_GetArraySize(rows), 5, "the rows of each host");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetArrayItem(rows, 2), "host")), "n0");
    cr_expect(number(object, "waiting") == 5 && number(object, "omitted_rows") == 3);
    cr_expect_eq(number(object, "missing_nodes"), 0);
    for (const char *const *key = (const char *const[]){ "details", "waits_in", NULL }; *key != NULL; key++)
        cr_expect_null(cJSON_GetObjectItem(object, *key), "%s", *key);
    cr_expect_null(cJSON_GetObjectItem(cJSON_GetArrayItem(rows, 2), "shown"));
    cJSON_Delete(object);
}

/* A table has ended: the next one begins with nothing. */
Test(hang_table, nodes_that_do_not_report_are_counted)
{
    char lines[HANG_PRINT_BYTES];
    cJSON *object;

    add("{\"waiting\": 9, \"rows\": []}");
    hang_table_clear(&table);
    object = taken(of_culprit, 1, lines);
    cr_expect_not_null(strstr(lines, "; 1 rank waits\n"), "%s", lines);
    cr_expect_not_null(strstr(lines, "  1 node did not say in time what its ranks do\n"), "%s", lines);
    cr_expect(number(object, "missing_nodes") == 1 && number(object, "waiting") == 1);
    cJSON_Delete(object);
    object = taken(of_culprit, 2, lines);
    cr_expect_not_null(strstr(lines, "  2 nodes did not say in time what their ranks do\n"), "%s", lines);
    cJSON_Delete(object);
}

/* A thousand nodes, each with ranks in two places, and one of every kind of line. */
Test(hang_table, no_number_of_nodes_makes_more_than_twenty_lines)
{
    char json[2048], lines[HANG_PRINT_BYTES];
    int n_lines = 0;
    cJSON *object;

    for (int i = 0; i < 1000; i++) {
        snprintf(
            json, sizeof json,
            "{\"rows\": [{\"ranks\": \"%d\", \"shown\": [\"a\"]}, {\"ranks\": \"%d\", \"shown\": [\"%d\"]}]}",
            2 * i + 10, 2 * i + 11, i);
        add(json);
    }
    snprintf(json, sizeof json,
             "{\"omitted_rows\": 7, \"rows\": [" ROW("3", "n1", "backward",
                                                     "12.5") "], \"details\": [1, 2, 3, 4, 5, 6, 7, 8, 9]}");
    object = taken(json, 3, lines);

    for (const char *at = lines; *at != '\0'; at++)
        n_lines += *at == '\n';
    cr_expect_eq(n_lines, HANG_LINES);
    cr_expect_not_null(strstr(lines, "  10, ... "), "a list that is too long: %s", lines);
    cr_expect_not_null(strstr(lines, "  and 994 more rows in errors.json; 7 were left out\n"), "%s", lines);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(object, "rows")), 2001);
    cJSON_Delete(object);
}

/* A node that was taken over sends what it likes; a terminal would act on control bytes. */
Test(hang_table, what_a_node_sends_is_bounded_and_cleaned)
{
    static const char *const wrong[] = { "", "[1]", "{\"rows\"", "{\"rows\": 3}", "{}" };
    static char json[4 * HANG_LINES * HANG_LINE_BYTES];
    char lines[HANG_PRINT_BYTES];
    size_t length = (size_t)sprintf(json, "{\"rows\": [1, [2], {\"ranks\": \"9-1,-3,x\"}], \"details\": [");

    for (int i = 0; i < HANG_LINES + 5; i++) {
        length += (size_t)sprintf(json + length, "%s\"\\u001b[2J", i == 0 ? "" : ",");
        memset(json + length, 'x', HANG_LINE_BYTES);
        length += HANG_LINE_BYTES;
        json[length++] = '"';
    }
    sprintf(json + length, "]}");
    add(json);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        add(wrong[i]);
    cJSON_Delete(taken(json, 0, lines));
    cr_expect_leq(strlen(lines), (size_t)HANG_LINES * HANG_LINE_BYTES);
    cr_expect_null(strchr(lines, 0x1b));

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_null(hang_table_take(&table, wrong[i], strlen(wrong[i]), 0, lines), "%s", wrong[i]);
        cr_expect_str_empty(lines);
    }
}
