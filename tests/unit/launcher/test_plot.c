#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/plot.h"

static struct plot plot;

static void end(void)
{
    plot_fini(&plot);
}

TestSuite(plot, .fini = end);

static void metrics(const char *line)
{
    plot_take_metrics(&plot, line, strlen(line));
}

static void event(const char *line)
{
    plot_take_event(&plot, line, strlen(line));
}

static void step(int number, double loss)
{
    char line[128];

    snprintf(line, sizeof line, "{\"step\": %d, \"loss\": %g, \"tokens_per_s\": %g}", number, loss, 1e6);
    metrics(line);
}

/* "1:9.5 2:8.5" */
static void points_are(const char *want)
{
    char got[256] = "";

    for (size_t i = 0; i < plot.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%g:%g", i == 0 ? "" : " ",
                 plot.points[i].step, plot.points[i].loss);
    cr_assert(eq(str, got, (char *)want));
}

static char *drawn(int columns, int lines, bool ascii)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    plot_text(&plot, columns, lines, ascii, out);
    fclose(out);
    return text;
}

Test(plot, steps_that_are_trained_again_count_as_they_were_last)
{
    for (int i = 1; i <= 5; i++)
        step(i, 10 - i);
    step(3, 6.5);

    points_are("1:9 2:8 3:6.5");
}

Test(plot, a_line_of_a_node_that_stood_still_does_not_count)
{
    metrics("{\"step\": 9, \"loss\": 1, \"term\": 2, \"time\": 20}");
    metrics("{\"step\": 9, \"loss\": 1.5, \"term\": 1, \"time\": 10}");
    points_are("9:1");
    metrics(
        "{\"step\": 9, \"loss\": 0.5, \"term\": 1, \"time\": 30}"); /* a later run, which counts from one */
    points_are("9:0.5");
    event("{\"event\": \"resume\", \"generation\": 2, \"step\": 8, \"term\": 2, \"time\": 40}");
    event("{\"event\": \"resume\", \"generation\": 1, \"step\": 4, \"term\": 1, \"time\": 39}");
    cr_assert(eq(sz, plot.n_restarts, 1));
}

Test(plot, what_is_no_line_of_metrics_is_passed_over)
{
    metrics("");
    metrics("{\"step\": 1, \"lo");
    metrics("{\"step\": -1, \"loss\": 1}");
    metrics("{\"step\": 1e300, \"loss\": 1}");
    metrics("{\"step\": \"1\", \"loss\": 1}");
    metrics("[1]");
    event("{\"event\": 7}");
    cr_assert(eq(sz, plot.n + plot.n_restarts, 0));
    metrics("{\"step\": 1, \"loss\": null}");
    points_are("1:nan");
}

Test(plot, only_a_later_generation_is_a_restart)
{
    event("{\"event\": \"resume\", \"generation\": 0, \"step\": 5}");
    event("{\"event\": \"restart\", \"generation\": 1}");
    event("{\"event\": \"resume\", \"generation\": 1, \"step\": 7}");
    cr_assert(eq(sz, plot.n_restarts, 1));
    cr_assert(eq(dbl, plot.restarts[0], 7));
}

/* A spike of one step among a million is in the picture. */
Test(plot, no_peak_of_a_long_run_is_lost)
{
    struct plot_band bands[70];

    for (int i = 1; i <= 1000000; i++)
        plot_take_metrics(&plot, i == 543210 ? "{\"step\":543210,\"loss\":9}" : "{\"step\":1}",
                          i == 543210 ? 24 : 10);
    cr_assert(eq(sz, plot.n, 1), "a step that repeats is one");
    plot_fini(&plot);
    for (int i = 1; i <= 100000; i++)
        step(i, i == 54321 ? 9 : 1);

    cr_assert(plot_columns(&plot, PLOT_LOSS, bands, 70));
    for (int i = 0; i < 70; i++) {
        cr_expect(eq(dbl, bands[i].low, 1), "%d", i);
        cr_expect(eq(dbl, bands[i].high, i == plot_column_of(&plot, 54321, 70) ? 9 : 1), "%d", i);
    }
}

Test(plot, plain_characters_have_axes_and_the_restart)
{
    char *text;

    for (int i = 1; i <= 9; i++)
        step(i, 10 - i);
    event("{\"event\": \"resume\", \"generation\": 1, \"step\": 5}");
    text = drawn(50, 5, true);

    cr_expect_null(strpbrk(text, "\xe2\x94"), "%s", text);
    cr_expect(eq(int, strncmp(text, "       9 |*    *\n", 17), 0), "%s", text);
    cr_expect_not_null(strstr(text, "\n       5 |                    *"), "%s", text);
    cr_expect_not_null(strstr(text, "\n       1 |"), "%s", text);
    cr_expect_not_null(strstr(text, "\n    loss +----------------------------------------\n"), "%s", text);
    cr_expect_not_null(strstr(text, "\n   1000k |"), "%s", text);
    cr_expect_not_null(strstr(text, "\nrestarts                      ^\n"), "%s", text);
    cr_expect_not_null(strstr(text, "\n    step  1                                      9\n"), "%s", text);
    free(text);
}

Test(plot, braille_draws_a_line_between_points)
{
    char *text;

    step(1, 2);
    step(100, 1);
    text = drawn(30, 2, false);

    cr_expect_not_null(strstr(text, "2 \u2502\u2809\u2811\u2812\u2812"), "%s", text);
    cr_expect_not_null(strstr(text, "1 \u2502"), "%s", text);
    free(text);
}

Test(plot, every_width_and_height_can_be_asked_for)
{
    static const int sizes[] = { -5, 0, 1, 29, 80, 120, 100000 };

    step(7, 3);
    event("{\"event\": \"resume\", \"generation\": 1, \"step\": 900}"); /* nothing was logged since */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            char *text = drawn(sizes[i], sizes[k], k % 2 == 0);

            cr_assert_not_null(strstr(text, "       3 "));
            free(text);
        }
}

Test(plot, svg_has_both_panels_the_restart_and_an_escaped_title)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    for (int i = 1; i <= 9; i++)
        step(i, 10 - i);
    event("{\"event\": \"resume\", \"generation\": 1, \"step\": 5}");
    plot_svg(&plot, "a<b>&\"\x01\xff", out);
    fclose(out);

    cr_expect_not_null(strstr(text, ">a&#60;b&#62;&#38;&#34;\xef\xbf\xbd\xef\xbf\xbd</text>"), "%s", text);
    cr_expect_not_null(strstr(text, ">tokens/s</text>"));
    cr_expect_not_null(strstr(text, "points=\"80.0,50.0 "), "the first loss is the highest: %s", text);
    cr_expect_not_null(strstr(text, "880.0,330.0\"/>"), "the last the lowest: %s", text);
    cr_expect_not_null(
        strstr(text, "x1=\"480.0\" y1=\"50.0\" x2=\"480.0\" y2=\"330.0\"><title>restart from step 5<"));
    cr_expect(eq(str, text + size - 7, (char *)"</svg>\n"));
    free(text);
}
