/*
 * Histories: what every simulation needs. One seed is one history, in a process of its own. All of it follows
 * from the seed, so a seed replays. Time is virtual: an event runs to its end at one moment.
 *   sim.c   random numbers, events, the lines of what happens
 *   main.c  seeds, processes, and the report
 * A simulation has sim_history() and sim_speaker(). One is in this folder (sim.h: several nodes), one in
 * tests/sim/arbiter (several agents and the store of an arbiter).
 */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

/** Run the history of a seed to its end. The simulation's own; it calls sim_seed() first. */
void sim_history(uint64_t seed);
/** The number of the host whose event this is, for its lines; -1: of none. The simulation's own. */
int sim_speaker(void);

#define MS     INT64_C(1000000)
#define SECOND INT64_C(1000000000)

/* Random numbers: one stream for each use, so that a new fault does not change all the rest. */
enum sim_stream {
    SIM_PLAN,
    SIM_NET,
    SIM_FAULTS,
    SIM_AGENTS,
    SIM_LEAVES,
    SIM_STORES,
    SIM_PULSES,
    SIM_BUSY,
    SIM_CLOCKS,
    SIM_STREAMS
};
void sim_seed(uint64_t seed);
uint64_t sim_draw(enum sim_stream stream);
/** Returns a number from low to high, both included. */
int64_t sim_between(enum sim_stream stream, int64_t low, int64_t high);
/** Returns true once in n times; never for n = 0. */
bool sim_one_in(enum sim_stream stream, int n);

/* Time */
extern int64_t sim_now; /* nanoseconds since the start of the history */
/** Call `run` at that time. Events of the same time run in the order of these calls. */
void sim_at(int64_t when, void (*run)(void *what, uint64_t number), void *what, uint64_t number);
/** Run events until `until`, or until none is left, or until `over` returns true. */
void sim_run(int64_t until, bool (*over)(void));
extern uint64_t sim_n_events;

/** Keep a line of what happens; `make sim SEED=n` prints all lines, a violation the last ones. */
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern bool sim_prints;     /* print each line at once */
extern uint64_t sim_digest; /* of all lines: equal for two runs of a seed */
/** An invariant does not hold: print it with the last lines, and end this process. */
_Noreturn void sim_violated(const char *invariant, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
