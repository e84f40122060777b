#include "agent/cluster/detail_proto.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct errors_detail detail, back;
static struct proto_detail text;

Test(detail_proto, comes_back_as_it_was)
{
    detail.tail.n_lines = 2;
    detail.tail.lines[0] = strcpy(detail.tail.bytes, "one");
    detail.tail.lines[1] = strcpy(detail.tail.bytes + 4, "two");
    snprintf(detail.message, sizeof detail.message, "m");
    snprintf(detail.traceback, sizeof detail.traceback, "a\nb\n");
    snprintf(detail.error_file, sizeof detail.error_file, "/e");
    snprintf(detail.log, sizeof detail.log, "/l");
    detail.shown = true;
    detail.output_at = UINT64_C(1) << 40;
    detail.raised_us = 17;

    detail_to_proto(&text, &detail);

    cr_assert(detail_from_proto(&back, &text));
    cr_expect_eq(back.tail.n_lines, 2);
    cr_expect_str_eq(back.tail.lines[0], "one");
    cr_expect_str_eq(back.tail.lines[1], "two");
    cr_expect_str_eq(back.message, "m");
    cr_expect_str_eq(back.traceback, "a\nb\n");
    cr_expect_str_eq(back.error_file, "/e");
    cr_expect_str_eq(back.log, "/l");
    cr_expect(back.shown && back.output_at == UINT64_C(1) << 40);
    cr_expect_eq(back.raised_us, 17);
}

Test(detail_proto, nothing_is_nothing)
{
    detail_to_proto(&text, NULL);

    cr_expect_not(detail_from_proto(&back, &text));
    cr_expect(errors_detail_is_empty(&back));
}

Test(detail_proto, of_too_many_lines_the_last_are_kept)
{
    static char line[300];

    memset(line, 'x', sizeof line - 1);
    for (int i = 0; i < ERRORS_TAIL_LINES; i++)
        detail.tail.lines[i] = line;
    detail.tail.lines[ERRORS_TAIL_LINES - 1] = "the last";
    detail.tail.n_lines = ERRORS_TAIL_LINES;

    detail_to_proto(&text, &detail);

    cr_assert(detail_from_proto(&back, &text));
    cr_expect(back.tail.n_lines > 5 && back.tail.n_lines < ERRORS_TAIL_LINES);
    cr_expect_str_eq(back.tail.lines[back.tail.n_lines - 1], "the last");
    cr_expect_eq(strlen(back.tail.lines[0]), sizeof line - 1, "whole lines only");
}

Test(detail_proto, a_copy_stands_by_itself)
{
    detail.tail.n_lines = 1;
    detail.tail.lines[0] = strcpy(detail.tail.bytes + 7, "one");

    errors_detail_copy(&back, &detail);
    memset(&detail, 'x', sizeof detail);

    cr_expect_str_eq(back.tail.lines[0], "one");
}
