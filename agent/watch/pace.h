/*
 * How a rank of a job spends the time of its steps, as its progress page shows it. A window is some steps in
 * a row: at least PACE_STEPS, and at least PACE_WINDOW_MS long. Nothing was saved in it.
 *
 * All times are differences of one clock, which only this rank's host reads: clocks of hosts are not
 * compared.
 *
 * Pure: the page is memory that the worker may change at any time, and may have filled with anything.
 */
#ifndef AGENT_PACE_H
#define AGENT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/link.h>

#include "agent/os/process_look.h"

enum { PACE_STEPS = 10, PACE_WINDOW_MS = 30000 };

/* The times on a page at the end of a step. */
struct pace_mark {
    uint64_t step; /* 0: there is none */
    uint64_t at_ns, spent_ns[FSDP_SPENT_N];
    bool on_gpu; /* the rank computes on a GPU */
};

/* What the kernel had counted for a process at that moment. */
struct pace_toll {
    uint64_t run_ns; /* how long its main thread ran; 0: not known */
    /*
     * The sum of the delays of all its threads. The process may be late by all of it: at one barrier it waits
     * for one thread without a CPU, and at the next for another.
     */
    uint64_t delay_ns;
};

/* The window of a rank that is open. */
struct pace_window {
    int64_t at_least_ns;
    struct pace_mark begin;
    struct pace_toll toll; /* at that time */
};

/* What a rank spent in a window. Each time is the sum over its steps. */
struct pace {
    int rank;
    int64_t step;     /* the last one of the window */
    int64_t n_steps;  /* above 0 */
    int64_t total_ns; /* the window */
    /*
     * The part of the window in which the rank did not wait for other ranks. For a rank that computes on a
     * GPU it is data_ns: the process does not see whether the GPU computes or waits for another GPU.
     */
    int64_t own_ns;
    int64_t data_ns;  /* the part of own_ns in which it read its data */
    int64_t delay_ns; /* for how long its threads were ready to run but had no CPU; at most own_ns */
    /*
     * the part of own_ns in which it neither read data, nor ran, nor was ready to run: it slept or was
     * stopped
     */
    int64_t idle_ns;
};

enum pace_step {
    PACE_WAIT, /* the window goes on */
    /* another window must begin, because there is none, or because a checkpoint was saved in this one */
    PACE_BEGIN,
    PACE_OVER, /* the window is over, and another one must begin */
};

/**
 * Reads the times at the end of the last step. Returns false if no step has ended yet, or if the worker
 * changes them at this moment.
 */
bool pace_read(struct pace_mark *mark, const struct fsdp_progress *page);

/** Takes the times at the end of a step. Returns what they mean for the current window. */
enum pace_step pace_look(const struct pace_window *window, const struct pace_mark *now);

/**
 * Fills in the times of a window that is over, but not `rank`. Returns false if the kernel does not report
 * how long the rank ran: the rank cannot be judged then.
 *   now, toll  the times and the kernel's counts at the end of the window
 */
bool pace_sum(struct pace *pace, const struct pace_window *window, const struct pace_mark *now,
              const struct pace_toll *toll);

/** Sums up what the kernel counts. */
struct pace_toll pace_toll_of(const struct process_toll *toll);

#endif
