/*
 * The progress line of a job: the state of the run as one line of a terminal. Pure: the clock and the width
 * are arguments, and the result is text, which console_status() shows. The world updates it from its one
 * timer, at most 4 times a second, if agent_output.bar is set and console_is_tty() returns true.
 *
 *   step 120/200  60% [##############----------]  loss 2.4312  0:42 left  3.1k tok/s
 */
#ifndef AGENT_PROGRESS_H
#define AGENT_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/config.h"

/** State of the estimate of the time left. One per run, all zero at first; a new generation resets it. */
struct progress_clock {
    int generation;
    uint64_t first_step, last_step;
    int64_t first_ns, last_ns; /* when these steps were first seen; 0: not yet */
    double step_s;             /* smoothed seconds a step; 0: unknown */
};

/** Update the estimate: `progress` was seen at `now_ns` (CLOCK_MONOTONIC). */
void progress_note(struct progress_clock *clock, const struct agent_progress *progress, int64_t now_ns);

/** Returns the seconds left at the pace seen so far, or a negative number if that is not known yet. */
double progress_left_s(const struct progress_clock *clock, const struct agent_progress *progress,
                       int64_t now_ns);

/**
 * Print one line of at most `columns` columns to `out` (`size` bytes). If it gets narrow, parts are left out
 * from the right; below 10 columns the line is empty.
 *   colour  the bar is coloured; colours take no columns
 *   left_s  seconds left; negative: unknown
 * Returns `out`.
 */
const char *progress_line(char *out, size_t size, int columns, bool colour,
                          const struct agent_progress *progress, double left_s);

#endif
