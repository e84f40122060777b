/*
 * The progress line of a job: one look at the run made into one line of a terminal. Pure: the clock and the
 * width come in, text goes out; console_status() shows it. The world calls it on its one timer (at most 4 a second)
 * when agent_output.bar is set and console_is_tty().
 *
 *   step 120/200  60% [##############----------]  loss 2.4312  0:42 left  3.1k tok/s
 */
#ifndef AGENT_PROGRESS_H
#define AGENT_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/config.h"

/** What the estimate of the time left remembers. Zero-initialise; one per run (a new generation begins it anew). */
struct progress_clock {
    int generation;
    uint64_t first_step, last_step;
    int64_t first_ns, last_ns; /* when they were first seen; 0: not yet */
    double step_s;             /* smoothed seconds a step; 0: unknown */
};

/** Note that `progress` was seen at `now_ns` (CLOCK_MONOTONIC). */
void progress_note(struct progress_clock *clock, const struct agent_progress *progress, int64_t now_ns);

/** Seconds left at the pace seen so far; negative: not known yet. */
double progress_left_s(const struct progress_clock *clock, const struct agent_progress *progress,
                       int64_t now_ns);

/**
 * One line of at most `columns` columns (parts are left out from the right as it gets narrow; nothing below 10) in `out`,
 * `size` bytes; `colour`: the bar is coloured. `left_s` negative: unknown. Returns `out`.
 */
const char *progress_line(char *out, size_t size, int columns, bool colour,
                          const struct agent_progress *progress, double left_s);

#endif
