/*
 * What a run cost: which part of its time was training that counts, and how often it should save. Pure.
 *
 * The interval between two saves weighs the time that saves take against the time that is lost in a failure.
 * The formula is equation 37 of J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
 * restart dumps", Future Generation Computer Systems 22, 2006. Its first term is Young's.
 */
#ifndef LAUNCHER_COST_H
#define LAUNCHER_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the time of a run went. The five parts add up to `seconds`. */
struct cost {
    double seconds, waiting_s, starting_s, training_s, saving_s, restarting_s;
    double repeated_s; /* part of training_s: steps that were lost in a failure, and done again */
    double step_s;     /* mean time of a step; 0: unknown */
    double save_s;     /* mean time for which a save kept rank 0 from training; 0: there was none */
    int n_restarts;    /* worlds that were formed after the first */
    int n_failures;    /* failures, also the one that ended the run */
};

struct cost_advice {
    bool known; /* the run had a save, a failure and a step at least; else nothing else is set */
    uint64_t every_steps;
    double between_failures_s; /* mean time from one failure to the next */
};

/** Returns the part of the run's time that was training and was not lost, from 0 to 1. */
double cost_effective(const struct cost *cost);

/**
 * Returns the time between the end of a save and the beginning of the next that loses least, in seconds.
 *   save_s              how long a save keeps the job from training
 *   between_failures_s  mean time between failures
 */
double cost_interval_s(double save_s, double between_failures_s);

/** Returns after how many steps the run should have saved. */
struct cost_advice cost_advise(const struct cost *cost);

enum { COST_CLOCK_BYTES = 32 };

/** Write seconds as "0:41" or "3:12:44" to `out`, and return it. */
const char *cost_clock(double seconds, char out[COST_CLOCK_BYTES]);

/**
 * Print the lines for people to `out`, each with its newline and "fsdprun: " in front; the text is cut to
 * `size`. The first has where the time went. The second has the advice, if it is far from `every`, the
 * interval in steps that the job has.
 */
void cost_words(const struct cost *cost, uint64_t every, char *out, size_t size);

#endif
