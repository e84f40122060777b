#include "agent/doctor/report.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static char *printed(const struct doctor_report *report)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    doctor_report_print(report, out);
    fclose(out);
    return text;
}

Test(doctor_report, a_report_survives_json_and_its_worst_state_is_known)
{
    struct doctor_report report = { 0 }, again = { 0 };
    char *text;

    cr_expect_eq(doctor_report_worst(&report), DOCTOR_OK);
    cr_assert(doctor_report_add(&report, "", "disk.space", DOCTOR_OK, "1 \"GiB\"", "free some"));
    cr_assert(doctor_report_add(&report, "n1", "clock.date", DOCTOR_FAIL, "off", "set it"));
    text = doctor_report_json(&report);
    cr_expect_str_eq(
        text,
        "[{\"check\": \"disk.space\", \"state\": \"ok\", \"value\": \"1 \\\"GiB\\\"\", \"advice\": null}, "
        "{\"check\": \"clock.date\", \"state\": \"fail\", \"value\": \"off\", \"advice\": \"set it\", "
        "\"node\": \"n1\"}]");
    cr_assert_eq(doctor_report_read(&again, text, strlen(text), NULL), FSDP_OK);

    cr_expect_eq(again.n, 2);
    cr_expect_eq(doctor_report_worst(&again), DOCTOR_FAIL);
    cr_expect_str_eq(again.rows[0].value, "1 \"GiB\"");
    cr_expect_str_eq(again.rows[1].node, "n1");
    free(text);
    doctor_report_fini(&report);
    doctor_report_fini(&again);
}

Test(doctor_report, what_is_no_report_is_refused)
{
    static const char *const texts[] = { "",
                                         "{}",
                                         "[{}]",
                                         "[1]",
                                         "[{\"check\": \"a\", \"state\": \"\", \"value\": \"b\"}]",
                                         "[{\"check\": 1, \"state\": \"ok\", \"value\": \"b\"}]",
                                         "[{\"check\": \"a\", \"state\": \"ok\"}]",
                                         "[{\"check\": \"a\", \"state\": \"ok\", \"value\": \"b\"}, null]" };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct doctor_report report = { 0 };

        cr_expect_eq(doctor_report_read(&report, texts[i], strlen(texts[i]), NULL), FSDP_ERR_FORMAT, "%s",
                     texts[i]);
        cr_expect_null(report.rows);
    }
}

Test(doctor_report, lines_fit_80_columns_and_show_no_control_characters)
{
    struct doctor_report report = { 0 };
    char *text, *rest, *line;

    for (int i = 0; i < 100; i++)
        cr_assert(
            doctor_report_add(&report, "", "memory.transparent", i % 2 == 0 ? DOCTOR_OK : DOCTOR_WARN,
                              "a value of many words that has to go on in another line of the table",
                              "advice that is longer than a line too, with \x1b[31m of a terminal in it, "
                              "and an end"));
    text = printed(&report);
    cr_expect_null(strchr(text, '\x1b'));
    cr_expect_not_null(strstr(text, "50 ok, 50 warn, 0 fail\n"));
    for (rest = text; (line = strsep(&rest, "\n")) != NULL;)
        cr_expect_leq(strlen(line), 80, "%s", line);
    free(text);
    doctor_report_fini(&report);
}

Test(doctor_report, of_other_nodes_only_trouble_and_what_is_between_nodes_is_printed)
{
    struct doctor_report report = { 0 };
    char *text;

    cr_assert(doctor_report_add(&report, "n0", "disk.space", DOCTOR_OK, "plenty here", NULL));
    cr_assert(doctor_report_add(&report, "n1", "disk.space", DOCTOR_OK, "plenty there", NULL));
    cr_assert(doctor_report_add(&report, "n1", "disk.sync", DOCTOR_WARN, "slow", "wait"));
    cr_assert(doctor_report_add(&report, "n1", "nodes.bandwidth", DOCTOR_OK, "wide", NULL));
    text = printed(&report);

    cr_expect_str_eq(text, "n0:\n"
                           "  ok    disk.space          plenty here\n"
                           "n1:\n"
                           "  warn  disk.sync           slow\n"
                           "        -> wait\n"
                           "  ok    nodes.bandwidth     wide\n"
                           "3 ok, 1 warn, 0 fail\n");
    free(text);
    doctor_report_fini(&report);
}

Test(doctor_report, the_trouble_of_a_node_is_a_line_for_each_row)
{
    struct doctor_report report = { 0 };
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    cr_assert(doctor_report_add(&report, "", "disk.space", DOCTOR_OK, "1 GiB", NULL));
    cr_assert(doctor_report_add(&report, "", "disk.sync", DOCTOR_WARN, "1 MB/s", "use a faster disk"));
    cr_assert(doctor_report_add(&report, "", "nodes", DOCTOR_FAIL, "two\nlines", "look"));

    doctor_report_print_trouble(&report, "n2", out);

    fclose(out);
    cr_expect_str_eq(text, "fsdprun doctor: n2: warn disk.sync: 1 MB/s -> use a faster disk\n"
                           "fsdprun doctor: n2: fail nodes: two?lines -> look\n");
    free(text);
    doctor_report_fini(&report);
}
