#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent/output/progress.h"

static struct agent_progress at_step(uint64_t step)
{
    return (struct agent_progress){ .step = step,
                                    .total_steps = 200,
                                    .loss = 2.43121,
                                    .grad_norm = 1,
                                    .tokens_per_s = 3140,
                                    .phase = FSDP_PHASE_FORWARD };
}

/* What a terminal shows of it: colours take no columns. */
static int shown_columns(const char *line)
{
    int n = 0;

    for (; *line != '\0'; line++) {
        if (*line == '\033')
            while (*line != 'm')
                line++;
        else
            n++;
    }
    return n;
}

static char line[256];

static const char *line_of(int columns, const struct agent_progress *progress, double left_s)
{
    return progress_line(line, sizeof line, columns, false, progress, left_s);
}

Test(progress, a_wide_line_has_everything)
{
    struct agent_progress progress = at_step(120);

    progress.generation = 1;

    cr_assert_str_eq(
        line_of(120, &progress, 42.4),
        "step 120/200  60% [##############----------]  loss 2.4312  0:42 left  3.14k tok/s  generation 1");
}

Test(progress, no_width_is_exceeded_and_none_overruns)
{
    struct agent_progress progress = at_step(120);

    progress.generation = 3;
    progress.stopping = true;
    for (int colour = 0; colour < 2; colour++)
        for (int columns = 0; columns < 150; columns++)
            for (size_t size = 1; size < 200; size++) {

                memset(line, 'x', sizeof line);
                progress_line(line, size, columns, colour, &progress, 4242);

                cr_assert(shown_columns(line) <= columns, "%d: %s", columns, line);
                cr_assert(strlen(line) < size && line[size] == 'x', "size %zu", size);
                cr_assert(strchr(line, '\033') == NULL || strstr(line, "\033[0m") != NULL,
                          "colours are ended: %s", line);
            }
}

Test(progress, parts_leave_from_the_right)
{
    struct agent_progress progress = at_step(7);

    cr_assert_str_eq(line_of(40, &progress, 100), "step 7/200   3%  loss 2.4312  1:40 left");
    cr_assert_str_eq(line_of(20, &progress, 100), "step 7/200   3%");
    cr_assert_str_eq(line_of(10, &progress, 100), "step 7/200");
    cr_assert_str_eq(line_of(9, &progress, 100), "");
}

Test(progress, what_is_unknown_is_left_out)
{
    struct agent_progress progress = { .loss = NAN, .tokens_per_s = NAN, .phase = FSDP_PHASE_LOAD };

    cr_assert_str_eq(line_of(100, &progress, -1), "step 0  loading");
    progress.total_steps = 3;
    progress.step = 9; /* more than all */
    cr_assert_not_null(strstr(line_of(100, &progress, NAN), "step 9/3 100% [####"));
}

Test(progress, rates_and_times_read_well)
{
    struct agent_progress progress = at_step(1);
    static const struct {
        double rate, left;
        const char *want;
    } cases[] = {
        { 0, 0, "0:00 left  0 tok/s" },
        { 999, 59.6, "1:00 left  999 tok/s" },
        { 1000, 3599, "59:59 left  1k tok/s" },
        { 123456, 3600, "1:00:00 left  123k tok/s" },
        { 2.5e6, 500000, "5 d 18 h left  2.5M tok/s" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {

        progress.tokens_per_s = cases[i].rate;
        line_of(150, &progress, cases[i].left);
        cr_assert_not_null(strstr(line, cases[i].want), "%s", line);
    }
}

Test(progress, the_pace_leaves_out_the_start)
{
    struct progress_clock clock = { 0 };
    struct agent_progress progress = at_step(0);
    const int64_t s = 1000000000;

    progress_note(&clock, &progress, 1 * s);
    cr_assert(progress_left_s(&clock, &progress, 2 * s) < 0, "nothing is known before two steps");
    progress.step = 1;
    progress_note(&clock, &progress, 31 * s); /* 30 s of start-up */
    cr_assert(progress_left_s(&clock, &progress, 31 * s) < 0);
    for (int i = 0; i < 9; i++) {
        progress.step++;
        progress_note(&clock, &progress, (33 + 2 * i) * s);
    }
    cr_assert(fabs(progress_left_s(&clock, &progress, 49 * s) - 2.0 * 190) < 1e-6);
    cr_assert(fabs(progress_left_s(&clock, &progress, 50 * s) - (2.0 * 190 - 1)) < 1e-6, "it counts down");
    cr_assert(fabs(progress_left_s(&clock, &progress, 90 * s) - (2.0 * 190 - 2)) < 1e-6,
              "but not below the step");
}

Test(progress, a_new_generation_begins_anew)
{
    struct progress_clock clock = { 0 };
    struct agent_progress progress = at_step(100);
    const int64_t s = 1000000000;

    progress_note(&clock, &progress, 1 * s);
    progress.step = 101;
    progress_note(&clock, &progress, 2 * s);
    cr_assert(progress_left_s(&clock, &progress, 2 * s) > 0);
    progress.generation = 1;
    progress.step = 50;
    progress_note(&clock, &progress, 60 * s);
    cr_assert(progress_left_s(&clock, &progress, 60 * s) < 0);
}
