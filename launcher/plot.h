/*
 * Plots a run: its loss and tokens per second by step, and the steps from which it was restarted. Reads the
 * lines of metrics.jsonl and events.jsonl, and draws text for a terminal or SVG. Pure.
 *
 * If a step was trained more than once, only the last time counts. So a new line removes all earlier lines
 * with the same or a later step. Exception: a line does not count if it has a lower term and an earlier time
 * than the line before. A node wrote it that was stopped while another one led.
 */
#ifndef LAUNCHER_PLOT_H
#define LAUNCHER_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The values of one logged step. NaN: the line does not have the value. */
struct plot_point {
    double step, loss, tokens_per_s;
};

/* Who wrote the last line of a file that counted, and when */
struct plot_origin {
    double term, time;
};

/* The values of a run. Begins as { 0 }. */
struct plot {
    struct plot_point *points; /* (n) in order of their steps, each step once */
    size_t n, capacity;
    double *restarts; /* (n_restarts) steps from which restarts went on, in order of time */
    size_t n_restarts, restarts_capacity;
    struct plot_origin metrics, events; /* of the last line of metrics.jsonl and of events.jsonl */
    bool failed;                        /* there was no memory: some values are missing */
};

void plot_fini(struct plot *plot);

/** Reads one line of metrics.jsonl. A line of another form is ignored. */
void plot_take_metrics(struct plot *plot, const char *line, size_t length);

/** Reads one line of events.jsonl. Only events of restarts are used. */
void plot_take_event(struct plot *plot, const char *line, size_t length);

/* Which value is drawn: the loss, or the tokens per second. */
enum plot_series { PLOT_LOSS, PLOT_PACE };

struct plot_band {
    double low, high; /* smallest and largest value in a column; NaN: the column has no value */
};

/**
 * Finds the smallest and largest value in each of `n_columns` columns, so that a long run's peaks stay
 * visible. The first step is in the first column, the last one in the last.
 *   bands  (n_columns) receives the two values of each column
 * Returns false if no step has a value.
 */
bool plot_columns(const struct plot *plot, enum plot_series series, struct plot_band *bands, int n_columns);

/** Returns in which of `n_columns` columns a step is. */
int plot_column_of(const struct plot *plot, double step, int n_columns);

/**
 * Draws for a terminal that is `columns` wide: the loss, the tokens per second, and a line that marks
 * restarts. The loss has `lines` lines, and the tokens per second half as many.
 *   ascii  true: one point for each character; false: Braille characters, with eight points each
 */
void plot_text(const struct plot *plot, int columns, int lines, bool ascii, FILE *out);

/** Writes the plot as a complete SVG file. `title` may contain any characters. */
void plot_svg(const struct plot *plot, const char *title, FILE *out);

#endif
