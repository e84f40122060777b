#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/record/errors.h"

static struct errors_report killed(void)
{
    return (struct errors_report){
        .class = ERRORS_SIGNAL,
        .status = 139,
        .cause = { .rank = 3,
                   .local_rank = 1,
                   .host = "n1",
                   .pid = 4242,
                   .exit_code = -1,
                   .signal = SIGSEGV },
        .phase = "forward",
        .step = 17,
        .generation = 2,
    };
}

static const char *line_of(const struct errors_report *report)
{
    static char line[512];

    return errors_line(report, line, sizeof line);
}

Test(errors, the_lines_of_a_copied_detail_are_its_own)
{
    struct errors_detail detail = { 0 }, copy;

    errors_tail_take(&detail.tail, "one\ntwo\n", 8, false);
    errors_detail_copy(&copy, &detail);
    memset(&detail, 'x', sizeof detail);

    cr_assert_eq(copy.tail.n_lines, 2);
    cr_assert_str_eq(copy.tail.lines[0], "one");
    cr_assert_str_eq(copy.tail.lines[1], "two");
}

Test(errors, the_line_names_rank_signal_and_place)
{
    const struct errors_report unstarted = { .class = ERRORS_EXEC,
                                             .cause = { .rank = 0, .exit_code = 126 },
                                             .step = -1,
                                             .message = "./x: Permission denied" };
    const struct errors_report refused = { .class = ERRORS_WORLD,
                                           .cause = { .rank = 2, .host = "n1", .exit_code = 75 },
                                           .step = -1,
                                           .n_collateral = 2,
                                           .message = "cannot start a worker: clone: no memory" };
    struct errors_report report = killed();

    report.n_collateral = 7;
    cr_assert_str_eq(line_of(&report),
                     "rank 3 (host n1, pid 4242) was killed by SIGSEGV in forward of step 17, generation 2; "
                     "7 other ranks were stopped");
    report = killed();
    report.phase = "rendezvous";
    report.where = "in rendezvous";
    report.step = -1;
    cr_assert_str_eq(line_of(&report),
                     "rank 3 (host n1, pid 4242) was killed by SIGSEGV in rendezvous, generation 2");
    cr_assert_str_eq(line_of(&unstarted),
                     "rank 0 could not be started, generation 0: ./x: Permission denied");
    cr_assert_str_eq(line_of(&refused),
                     "rank 2 (host n1) could not be started, generation 0: cannot start a worker: clone: no "
                     "memory; 2 other ranks were stopped");
    report.message = "E: loading:\n\tkey a.\n\n  \tkey  b.";
    cr_assert_not_null(strstr(line_of(&report), ": E: loading: key a. key  b."), "%s", line_of(&report));
}

Test(errors, every_class_has_a_name_and_a_line_that_fits)
{
    struct errors_report report = killed();
    char line[256];

    report.message = "two\nlines";
    for (int class = 1; class < ERRORS_CLASS_COUNT; class ++) {
        report.class = class;
        cr_assert_str_neq(errors_class_name(class), "unknown");
        errors_line(&report, line, sizeof line);
        cr_assert(strlen(line) > 10 && strchr(line, '\n') == NULL, "%s", line);
        for (size_t size = 1; size < 200; size++) {
            memset(line, 'x', sizeof line);
            errors_line(&report, line, size);
            cr_assert(strlen(line) < size && line[size] == 'x', "size %zu", size);
        }
    }
    cr_assert_str_eq(errors_class_name(ERRORS_CLASS_COUNT), "unknown");
    cr_assert_str_eq(errors_class_name(0), "unknown");
}

Test(errors, signals_have_their_names)
{
    char name[32];

    cr_assert_str_eq(errors_signal_name(SIGKILL, name), "SIGKILL");
    cr_assert_str_eq(errors_signal_name(SIGRTMIN + 2, name), "SIGRTMIN+2");
    cr_assert_str_eq(errors_signal_name(99, name), "signal 99");
}

static cJSON *json_of(const struct errors_report *report)
{
    char *text = errors_json(report, 1.5);
    cJSON *json = cJSON_ParseWithOpts(text, NULL, 1);

    cr_assert_not_null(json, "%s", text);
    free(text);
    return json;
}

Test(errors, json_counts_all_and_lists_the_first_1024_that_died_of_it)
{
    static struct errors_death others[1500];
    struct errors_report report = killed();
    const cJSON *collateral;
    cJSON *json;

    report.collateral = others;
    report.n_collateral = 1500;
    json = json_of(&report);
    collateral = cJSON_GetObjectItem(json, "collateral");
    cr_expect_eq(cJSON_GetObjectItem(collateral, "count")->valueint, 1500);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(collateral, "ranks")), 1024);
    cJSON_Delete(json);
}

Test(errors, what_a_terminal_would_obey_is_replaced_in_the_account)
{
    static struct errors_detail stderr_lines = { .tail = { .n_lines = 2,
                                                           .lines = { "\x1b]0;title\a", "a\ttab \x7f" } } };
    static struct errors_detail raised = { .traceback = "Traceback:\n\x1b[2Jgone\r" };
    char text[256];

    cr_expect_str_eq(errors_account(&stderr_lines, text, sizeof text),
                     "fsdprun: its last lines on stderr:\n  ?]0;title?\n  a\ttab ?\n");
    cr_expect_str_eq(errors_account(&raised, text, sizeof text),
                     "fsdprun: its Python traceback:\n  Traceback:\n  ?[2Jgone?\n");
}

Test(errors, json_holds_cause_and_collateral)
{
    static const char want[] =
        "{\"time\": 1.500000, \"status\": 139,\n"
        "  \"cause\": {\"class\": \"signal\", \"rank\": 3, \"local_rank\": 1, \"host\": \"n1\", \"pid\": "
        "4242, "
        "\"exit_code\": null, \"signal\": 11, \"signal_name\": \"SIGSEGV\", \"phase\": \"forward\", "
        "\"step\": 17, \"oom_kill\": false, \"generation\": 2, \"message\": null, \"traceback\": null, "
        "\"raised\": null, \"error_file\": null, \"log\": null, "
        "\"stderr\": [\"bad \xef\xbf\xbd byte\", \"last\"], \"hang\": {\"waiting\": 7}},\n"
        "  \"collateral\": {\"count\": 2, \"ranks\": [\n"
        "    {\"rank\": 0, \"local_rank\": 0, \"host\": null, \"pid\": null, \"exit_code\": 75, "
        "\"signal\": null, \"signal_name\": null},\n"
        "    {\"rank\": 1, \"local_rank\": null, \"host\": null, \"pid\": null, \"exit_code\": null, "
        "\"signal\": 15, \"signal_name\": \"SIGTERM\"}]}}\n";
    struct errors_report report = killed();
    struct errors_death others[2] = { { .rank = 0, .local_rank = 0, .exit_code = 75 },
                                      { .rank = 1, .local_rank = -1, .exit_code = -1, .signal = SIGTERM } };
    static struct errors_detail detail = { .tail = { .n_lines = 2, .lines = { "bad \xff byte", "last" } } };
    char *text;

    report.collateral = others;
    report.n_collateral = 2;
    report.detail = &detail;
    report.hang = "{\"waiting\": 7}";
    text = errors_json(&report, 1.5);

    cr_assert_str_eq(text, want);
    cJSON_Delete(json_of(&report));
    free(text);
}

/* The tail of `text`, its lines joined by '|'. */
static const char *tail_of(const char *text, bool cut)
{
    static char joined[8192];
    static struct errors_tail tail;

    errors_tail_take(&tail, text, strlen(text), cut);
    joined[0] = '\0';
    for (int i = 0; i < tail.n_lines; i++) {
        strcat(joined, tail.lines[i]);
        strcat(joined, "|");
    }
    return joined;
}

Test(errors, the_tail_is_the_last_lines)
{
    char many[64 * 10] = "", want[512] = "";

    cr_assert_str_eq(tail_of("", false), "");
    cr_assert_str_eq(tail_of("one", false), "one|");
    cr_assert_str_eq(tail_of("\n\n\n", false), "");
    cr_assert_str_eq(tail_of("one\ntwo\n", false), "one|two|");
    cr_assert_str_eq(tail_of("one\n\ntwo\r\n", false), "one||two|");
    cr_assert_str_eq(tail_of("half a line\nnew\n", true), "new|");
    cr_assert_str_eq(tail_of("10%\r20%\rdone\nx\n", false), "done|x|", "what was overwritten is left out");
    for (int i = 0; i < 64; i++)
        sprintf(many + strlen(many), "line%02d\n", i);
    for (int i = 64 - ERRORS_TAIL_LINES; i < 64; i++)
        sprintf(want + strlen(want), "line%02d|", i);
    cr_assert_str_eq(tail_of(many, false), want);
}

Test(errors, the_tail_of_long_lines_stays_small)
{
    static char text[20001];
    const char *got;

    memset(text, 'x', 20000);

    got = tail_of(text, false);
    cr_assert(strlen(got) == ERRORS_TAIL_BYTES + 1, "one endless line: its end");
    memcpy(text + 19000, "\nend", 4);
    got = tail_of(text, false);
    cr_assert(strncmp(got, "endx", 4) == 0 && strlen(got) == 1000,
              "a line that does not begin in sight is left out");
}

Test(errors, what_has_just_gone_by_is_known)
{
    struct errors_detail detail = { .shown = true, .output_at = 100000 };
    static const char last_words[] = "[rank0]: Traceback (most recent call last):\n[rank0]: ValueError: x\n";

    errors_tail_take(&detail.tail, last_words, sizeof last_words - 1, false);
    cr_expect(errors_detail_went_by(&detail, 100000));
    cr_expect_not(errors_detail_went_by(&detail, 120000), "more than a screen came after it");
    strcpy(detail.traceback, "Traceback (most recent call last):\nValueError: x\n");
    cr_expect(errors_detail_went_by(&detail, 100000), "with PyTorch's prefix");
    strcpy(detail.traceback, "Traceback (most recent call last):\nKeyError: 'only in the error file'");
    cr_expect_not(errors_detail_went_by(&detail, 100000));
    detail.traceback[0] = '\0';
    detail.shown = false;
    cr_expect_not(errors_detail_went_by(&detail, 100000));
}
