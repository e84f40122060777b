/*
 * What a run cost: how much of its time was training whose result was kept, and how often it should save.
 * Pure.
 *
 * A short interval between saves costs the time of many saves. A long one costs the training that a failure
 * loses. The formula for the best interval is equation 37 of J. T. Daly, "A higher order estimate of the
 * optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22, 2006. Its first term
 * is Young's.
 */
#ifndef LAUNCHER_COST_H
#define LAUNCHER_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the time of a run went. The five times after `seconds` add up to it. */
struct cost {
    double seconds, waiting_s, starting_s, training_s, saving_s, restarting_s;
    /* the part of training_s that went to doing steps again that a failure had lost */
    double repeated_s;
    double step_s;  /* mean time of a step; 0: unknown */
    double save_s;  /* mean time for which a save kept rank 0 from training; 0: the run did not save */
    int n_restarts; /* worlds that were formed after the first */
    int n_failures; /* failures, including one that ended the run */
};

struct cost_advice {
    /* the run had at least one save, one failure and one step; if false, the other fields are 0 */
    bool known;
    uint64_t every_steps;
    double between_failures_s; /* mean time from one failure to the next */
};

/** Returns the part of the run's time, from 0 to 1, that was training whose result was kept. */
double cost_effective(const struct cost *cost);

/**
 * Returns the interval that loses the least time, in seconds from the end of a save to the beginning of the
 * next.
 *   save_s              how long a save keeps the job from training
 *   between_failures_s  mean time between failures
 */
double cost_interval_s(double save_s, double between_failures_s);

/** Returns the number of steps between saves that would have lost the least time in this run. */
struct cost_advice cost_advise(const struct cost *cost);

enum { COST_CLOCK_BYTES = 32 };

/** Writes a time in seconds to `out` as "0:41" or "3:12:44", and returns `out`. */
const char *cost_clock(double seconds, char out[COST_CLOCK_BYTES]);

/**
 * Writes one or two lines for the user to `out`; each begins with "fsdprun: " and ends with a newline. The
 * text is cut to `size`. The first line says where the time went. The second advises another interval between
 * saves. It is left out if the advice is close to `every`, the job's interval in steps.
 */
void cost_words(const struct cost *cost, uint64_t every, char *out, size_t size);

#endif
