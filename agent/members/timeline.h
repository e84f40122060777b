/*
 * The timeline of a restart: how long each part took, from the failure of one generation to the first step of
 * the next. Also the pace of the generation that runs, which gives the time of the steps that are repeated.
 *
 * The coordinator calls these functions in this order:
 *   1. timeline_detect() when it learns of a failure, or decides to change the nodes.
 *   2. timeline_restart() when no process of that generation is left, and another generation follows.
 *   3. timeline_form() when the nodes and ranks of the next generation are decided.
 *   4. timeline_event() for the events of that generation, until it returns true: the timeline is complete.
 *
 * Pure: no loop, no clock. All times are in nanoseconds of one clock, the CLOCK_MONOTONIC of the
 * coordinator's host.
 */
#ifndef AGENT_TIMELINE_H
#define AGENT_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/record/events.h"

/* The moments of a restart, in their order. */
enum timeline_stamp {
    TIMELINE_DETECTED,   /* the coordinator learned of the failure */
    TIMELINE_STOPPED,    /* no process of the old generation was left */
    TIMELINE_FENCED,     /* no rank of a lost node could run any more; equal to STOPPED if no node was lost */
    TIMELINE_FORMED,     /* the nodes and ranks of the new generation were decided */
    TIMELINE_SPAWNED,    /* its last worker was started */
    TIMELINE_RESUMED,    /* rank 0 of a job had loaded the checkpoint */
    TIMELINE_FIRST_STEP, /* rank 0 of a job had done its first step */
    TIMELINE_N
};

/* What ended a generation, so that another one had to begin. */
struct timeline_failure {
    const char *reason; /* "exit", "signal", ...; a literal */
    int rank;           /* the rank that failed; -1: none */
    int64_t when_ns;    /* the failure itself, before anything noticed it */
    int64_t step;       /* steps that the rank that came farthest had done; -1: unknown */
};

/* All zero before the first generation. */
struct timeline {
    bool job; /* the timeline ends with the first step of a job, not with the last spawn of a program */

    /* The generation that runs. */
    int64_t detected_ns; /* 0: nothing has failed */
    /* when the current generation has done its first step, and that step's number; 0: it has not */
    int64_t first_step_ns, first_step;
    int64_t saving_ns; /* time since then in which rank 0 saved */

    /* The restart. Times that are not known are -1. */
    bool open; /* the restart has begun, and its timeline was not written yet */
    int generation;
    struct timeline_failure failure;
    int64_t at_ns[TIMELINE_N];
    int64_t resume_step; /* -1: from the initial weights, or unknown */
    double step_s;       /* mean time of a step before the failure; 0: unknown */
    int n_spawned, world_size;
};

/** The generation that runs has failed, or must end. Only the first call in a generation counts. */
void timeline_detect(struct timeline *timeline, int64_t now_ns);

/** Nothing is left of the generation that ran, and `generation` follows. An older timeline is forgotten. */
void timeline_restart(struct timeline *timeline, int generation, const struct timeline_failure *failure,
                      int64_t now_ns);

/**
 * A generation begins with `world_size` workers, from the checkpoint of `resume_step` (-1: from none). Ranks
 * of lost nodes could run until `fenced_ns`; a time before the failure belongs to an earlier restart.
 */
void timeline_form(struct timeline *timeline, int world_size, int64_t resume_step, int64_t fenced_ns,
                   int64_t now_ns);

/**
 * Take an event of the generation that runs.
 *   rank  the worker that sent it; below 0: an agent did. An event of a wrong sender is ignored
 *   step  its `step`; below 0: it has none
 * Returns true if this completed a timeline: the caller writes it, and sets `open` to false.
 */
bool timeline_event(struct timeline *timeline, int rank, const char *event, int64_t step, int64_t now_ns);

/** Rank 0 of the generation that runs was saving for `blocked_ns`. */
void timeline_saved(struct timeline *timeline, int64_t blocked_ns);

/* The number of fields of the event "timeline", with the end mark. */
enum { TIMELINE_FIELDS = TIMELINE_N + 6 };
void timeline_fields(const struct timeline *timeline, struct events_field fields[TIMELINE_FIELDS]);

/**
 * Print the line of a complete timeline of a job to `out`, without its newline:
 *   "training again after 11.9 s (10.31 detected, 0.75 stopped, ...); 28 steps (41 s) are repeated"
 */
void timeline_words(const struct timeline *timeline, char *out, size_t size);

#endif
