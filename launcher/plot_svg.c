/* Writes the plot of a run as SVG 1.1: two panels, one above the other, with the same axis of steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/plot.h"
#include "shard_runtime/core/utf8.h"

enum {
    WIDTH = 900,
    HEIGHT = 560,
    LEFT = 80,
    RIGHT = 20,
    TOP = 50,
    LOSS_HEIGHT = 280,
    GAP = 40,
    PACE_HEIGHT = 130
};
enum { INSIDE = WIDTH - LEFT - RIGHT, TICKS = 5 };

/* Writes text in XML. A character that XML 1.0 cannot contain becomes U+FFFD. */
static void put_text(FILE *out, const char *text)
{
    while (*text != '\0') {
        const size_t length = utf8_length(text, strlen(text));

        if (length == 0 || (unsigned char)*text < 0x20)
            fputs(UTF8_REPLACEMENT, out);
        else if (*text == '&' || *text == '<' || *text == '>' || *text == '"')
            fprintf(out, "&#%d;", *text);
        else
            fwrite(text, 1, length, out);
        text += length == 0 ? 1 : length;
    }
}

/* Returns the distance of ticks: 1, 2 or 5 times a power of ten, such that `span` has about TICKS of them. */
static double tick_of(double span)
{
    const double raw = span / TICKS, power = pow(10, floor(log10(raw))), times = raw / power;

    return power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

struct axis {
    double low, high; /* the values at its two ends */
    double from, to;  /* where these ends are in the picture */
};

static double place(const struct axis *axis, double value)
{
    return axis->from + (value - axis->low) / (axis->high - axis->low) * (axis->to - axis->from);
}

static struct axis axis_of(double low, double high, double from, double to)
{
    if (!(high > low))
        high = low + (low == 0 ? 1 : fabs(low));
    return (struct axis){ low, high, from, to };
}

/* Draws the grid lines and numbers of an axis. `upright`: the lines are upright, as on the axis of steps. */
static void put_ticks(const struct axis *axis, bool upright, double other_from, double other_to, FILE *out)
{
    const double tick = tick_of(axis->high - axis->low);

    for (double value = ceil(axis->low / tick) * tick; value <= axis->high + tick * 1e-9; value += tick) {
        const double at = place(axis, value), shown = fabs(value) < tick * 1e-9 ? 0 : value;

        if (upright)
            fprintf(out,
                    "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
                    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.10g</text>\n",
                    at, other_from, at, other_to, at, other_to + 16, shown);
        else
            fprintf(out,
                    "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
                    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                    other_from, at, other_to, at, other_from - 6, at + 4, shown);
    }
}

/* Draws a curve through the smallest and the largest value of each column. */
static void put_curve(const struct plot *plot, const struct plot_band *bands, const struct axis *values,
                      FILE *out)
{
    const struct axis steps = axis_of(0, INSIDE - 1, LEFT, LEFT + INSIDE);
    bool any = false;

    fputs("<polyline class=\"curve\" points=\"", out);
    for (int i = 0; i < INSIDE; i++) {
        if (isnan(bands[i].low))
            continue;
        fprintf(out, "%s%.1f,%.1f", any ? " " : "", place(&steps, i), place(values, bands[i].high));
        if (bands[i].low < bands[i].high)
            fprintf(out, " %.1f,%.1f", place(&steps, i), place(values, bands[i].low));
        any = true;
    }
    fputs("\"/>\n", out);
    if (plot->n == 1) /* a line through one point would be invisible */
        fprintf(out, "<circle cx=\"%d\" cy=\"%.1f\" r=\"2\"/>\n", LEFT, place(values, bands[0].low));
}

static void put_panel(const struct plot *plot, enum plot_series series, const char *name, double top,
                      double height, FILE *out)
{
    struct plot_band *bands = calloc(INSIDE, sizeof *bands);
    const struct axis steps =
        axis_of(plot->points[0].step, plot->points[plot->n - 1].step, LEFT, LEFT + INSIDE);
    double low = (double)NAN, high = (double)NAN;
    struct axis values;

    if (bands == NULL || !plot_columns(plot, series, bands, INSIDE)) {
        free(bands);
        return;
    }
    for (int i = 0; i < INSIDE; i++) {
        low = fmin(low, bands[i].low);
        high = fmax(high, bands[i].high);
    }
    values = axis_of(low, high, top + height, top);
    put_ticks(&steps, true, top, top + height, out);
    put_ticks(&values, false, LEFT, LEFT + INSIDE, out);
    fprintf(out, "<rect class=\"frame\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>\n", LEFT, top,
            INSIDE, height);
    fprintf(out, "<text transform=\"translate(18 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
            top + height / 2, name);
    for (size_t i = 0; i < plot->n_restarts; i++) {
        const double step = fmin(fmax(plot->restarts[i], steps.low), steps.high), at = place(&steps, step);

        fprintf(out,
                "<line class=\"restart\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"><title>restart from "
                "step "
                "%.0f</title></line>\n",
                at, top, at, top + height, plot->restarts[i]);
    }
    put_curve(plot, bands, &values, out);
    free(bands);
}

void plot_svg(const struct plot *plot, const char *title, FILE *out)
{
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<style>.grid{stroke:#ddd}.frame{fill:none;stroke:#444}.curve{fill:none;stroke:#1a6fb5;"
            "stroke-linejoin:round}.restart{stroke:#c33;stroke-dasharray:4 3}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text x=\"%d\" y=\"28\" font-size=\"16\">",
            WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    put_text(out, title);
    fputs("</text>\n", out);
    if (plot->n > 0) {
        put_panel(plot, PLOT_LOSS, "loss", TOP, LOSS_HEIGHT, out);
        put_panel(plot, PLOT_PACE, "tokens/s", TOP + LOSS_HEIGHT + GAP, PACE_HEIGHT, out);
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", LEFT + INSIDE / 2,
                HEIGHT - 12);
    }
    fputs("</svg>\n", out);
}
