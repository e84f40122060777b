/*
 * The course of a run: its losses and its pace by the step, and where it started again. From the lines of
 * metrics.jsonl and events.jsonl, as text for a terminal and as SVG. Pure.
 *
 * A step that was trained again counts as it was last. So a line removes every line before it that has the
 * same or a later step. A line with a lower term and an earlier time than the one before was written by a
 * node that stood still. It does not count.
 */
#ifndef LAUNCHER_PLOT_H
#define LAUNCHER_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A logged step. NaN: not in the line. */
struct plot_point {
    double step, loss, tokens_per_s;
};

/* All zero at first. */
struct plot {
    struct plot_point *points; /* (n) by their steps, all different */
    size_t n, capacity;
    double *restarts; /* (n_restarts) the steps from which later generations went on, in order of time */
    size_t n_restarts, restarts_capacity;
    double term, time; /* of the last line */
    bool failed;       /* no memory: some lines are missing */
};

void plot_fini(struct plot *plot);

/** Take a line of metrics.jsonl; one that is no such line is passed over. */
void plot_take_metrics(struct plot *plot, const char *line, size_t length);

/** Take a line of events.jsonl. */
void plot_take_event(struct plot *plot, const char *line, size_t length);

/* What is drawn of a point. */
enum plot_series { PLOT_LOSS, PLOT_PACE };

struct plot_band {
    double low, high; /* the least and the most in a column; NaN: no point is there */
};

/**
 * Sort the points into columns, so that no peak of a long run is lost. The first step is in the first column,
 * the last one in the last.
 *   bands  (n_columns) receives the least and the most of each
 * Returns false if no point has a value.
 */
bool plot_columns(const struct plot *plot, enum plot_series series, struct plot_band *bands, int n_columns);

/** The column of a step among `n_columns`. */
int plot_column_of(const struct plot *plot, double step, int n_columns);

/**
 * Draw for a terminal of `columns` columns: losses, pace, and a line with the restarts. The loss has `lines`
 * lines, and the pace half as many.
 *   ascii  plain characters, one point a cell; else Braille, with eight points a cell
 */
void plot_text(const struct plot *plot, int columns, int lines, bool ascii, FILE *out);

/** Draw as a whole SVG file. `title` may have any characters. */
void plot_svg(const struct plot *plot, const char *title, FILE *out);

#endif
