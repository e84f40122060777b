/*
 * Draws the plot of a run in a terminal. A panel is a grid of dots. A character has one dot, or in Braille
 * two by four.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/plot.h"

/*
 * Widths in characters: before the axis (LABEL), and of the smallest and largest plot. MOST_LINES: its lines.
 */
enum { LABEL = 9, LEAST = 20, MOST = 400, MOST_LINES = 100 };

struct panel {
    const char *name;
    enum plot_series series;
    int width, lines; /* in characters */
    bool ascii;
    int dots_x, dots_y;   /* dots in one character */
    double low, high;     /* the values at the lowest and the highest dot */
    unsigned char *cells; /* (lines, width) the dots of each character, as the bits of a Braille character */
};

static void set_dot(struct panel *panel, int x, int y)
{
    /* Unicode 15.0, chapter 21.1: dots 1 to 8 are bits 0 to 7; dots 1, 2, 3 and 7 are on the left */
    static const unsigned char braille[4][2] = {
        { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 }
    };
    const int row = panel->lines * panel->dots_y - 1 - y;

    panel->cells[row / panel->dots_y * panel->width + x / panel->dots_x] |=
        panel->ascii ? 1 : braille[row % 4][x % 2];
}

static int dot_of(const struct panel *panel, double value)
{
    return (int)((value - panel->low) / (panel->high - panel->low) * (panel->lines * panel->dots_y - 1) +
                 0.5);
}

static void set_dots(struct panel *panel, int x, int from, int to)
{
    for (int y = from < to ? from : to; y <= from || y <= to; y++)
        set_dot(panel, x, y);
}

/*
 * Sets the dots of column `x`. `before` is the last column with a value; -1: none. In Braille, the columns
 * between the two get dots on the straight line that joins them. In plain characters they stay empty.
 */
static void set_band(struct panel *panel, const struct plot_band *bands, int before, int x)
{
    const int low = dot_of(panel, bands[x].low), high = dot_of(panel, bands[x].high);

    set_dots(panel, x, low, high);
    if (before < 0 || panel->ascii)
        return;
    for (int between = before + 1; between < x; between++) {
        const double part = (double)(between - before) / (x - before);
        const double from = (bands[before].low + bands[before].high) / 2,
                     to = (bands[x].low + bands[x].high) / 2;
        const int y = dot_of(panel, from + (to - from) * part);

        set_dots(panel, between, y, y);
    }
}

static void print_cell(const struct panel *panel, unsigned char dots, FILE *out)
{
    if (panel->ascii || dots == 0)
        fputc(dots == 0 ? ' ' : '*', out);
    else
        fprintf(out, "\xe2%c%c", 0xa0 + (dots >> 6), 0x80 + (dots & 0x3f)); /* U+2800 and the dots */
}

static void print_value(double value, const char *bar, FILE *out)
{
    if (fabs(value) >= 1e10 || fabs(value) < 1e4)
        fprintf(out, "%*.4g %s", LABEL - 1, value, bar);
    else
        fprintf(out, "%*.4g%c %s", LABEL - 2, fabs(value) < 1e7 ? value / 1e3 : value / 1e6,
                fabs(value) < 1e7 ? 'k' : 'M', bar);
}

static void print_grid(const struct panel *panel, FILE *out)
{
    const char *bar = panel->ascii ? "|" : "\xe2\x94\x82", *dash = panel->ascii ? "-" : "\xe2\x94\x80";

    for (int row = 0; row < panel->lines; row++) {
        const unsigned char *cells = panel->cells + row * panel->width;
        const double value = panel->lines == 1
                                 ? panel->low
                                 : panel->high - (panel->high - panel->low) * row / (panel->lines - 1);
        int n = panel->width;

        while (n > 0 && cells[n - 1] == 0)
            n--;
        if (row == 0 || row == panel->lines - 1 || row == panel->lines / 2)
            print_value(value, bar, out);
        else
            fprintf(out, "%*s%s", LABEL, "", bar);
        for (int i = 0; i < n; i++)
            print_cell(panel, cells[i], out);
        fputc('\n', out);
    }
    fprintf(out, "%*s %s", LABEL - 1, panel->name, panel->ascii ? "+" : "\xe2\x94\x94");
    for (int i = 0; i < panel->width; i++)
        fputs(dash, out);
    fputc('\n', out);
}

/* Draws one panel. Returns false if no step has its value. */
static bool draw(const struct plot *plot, struct panel *panel, FILE *out)
{
    const int n = panel->width * panel->dots_x;
    struct plot_band *bands = calloc((size_t)n, sizeof *bands);
    int before = -1;
    bool any = false;

    panel->cells = calloc((size_t)panel->lines, (size_t)panel->width);
    if (bands != NULL && panel->cells != NULL)
        any = plot_columns(plot, panel->series, bands, n);
    panel->low = panel->high = (double)NAN;
    for (int i = 0; any && i < n; i++) {
        panel->low = fmin(panel->low, bands[i].low);
        panel->high = fmax(panel->high, bands[i].high);
    }
    if (any && !(panel->high > panel->low)) /* all values are equal: give the axis a range all the same */
        panel->high = panel->low + (panel->low == 0 ? 1 : fabs(panel->low));
    for (int i = 0; any && i < n; i++) {
        if (isnan(bands[i].low))
            continue;
        set_band(panel, bands, before, i);
        before = i;
    }
    if (any)
        print_grid(panel, out);
    free(bands);
    free(panel->cells);
    return any;
}

static void print_restarts(const struct plot *plot, int width, FILE *out)
{
    char line[MOST + 1];
    int n = 0;

    memset(line, ' ', sizeof line);
    for (size_t i = 0; i < plot->n_restarts; i++) {
        const int at = plot_column_of(plot, plot->restarts[i], width);

        line[at] = '^';
        n = at >= n ? at + 1 : n;
    }
    if (n > 0)
        fprintf(out, "%*s  %.*s\n", LABEL - 1, "restarts", n, line);
}

void plot_text(const struct plot *plot, int columns, int lines, bool ascii, FILE *out)
{
    int width = columns - LABEL - 1;
    struct panel panel = { .ascii = ascii, .dots_x = ascii ? 1 : 2, .dots_y = ascii ? 1 : 4 };

    if (plot->n == 0)
        return;
    width = width < LEAST ? LEAST : width > MOST ? MOST : width;
    lines = lines < 2 ? 2 : lines > MOST_LINES ? MOST_LINES : lines;
    panel.width = width;
    panel.name = "loss";
    panel.lines = lines;
    draw(plot, &panel, out);
    panel.name = "tok/s";
    panel.series = PLOT_PACE;
    panel.lines = lines / 2;
    draw(plot, &panel, out);
    print_restarts(plot, width, out);
    fprintf(out, "%*s  %-*.0f%*.0f\n", LABEL - 1, "step", width / 2, plot->points[0].step, width - width / 2,
            plot->points[plot->n - 1].step);
}
