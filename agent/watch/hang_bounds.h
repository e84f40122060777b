/*
 * How long a rank of a job may give no sign of life: bounds that are learned from the run.
 *
 * For each phase it is measured how long ranks of this node were silent in it, not how long the phase took.
 * Silence is the time between two changes of a progress page, less the time that is excused (see
 * hang_excuse()). A bound is 5 times the longest silence that was seen. It is at least 10 s in a step, and 30
 * s where disks and drivers are waited for. It is never more than the run's limit (launch.hang_timeout_s).
 * Until a class of silences is learned, its bound is the limit.
 *
 * The longest silence is that of the last two windows of steps (or saves, or generations), so one hiccup does
 * not count for ever.
 *
 * Pure: times are arguments.
 */
#ifndef AGENT_HANG_BOUNDS_H
#define AGENT_HANG_BOUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/link.h>

#include "agent/os/process_look.h"

enum hang_class {
    HANG_START, /* the process has not opened its link */
    HANG_OPEN,  /* process groups and devices are opened, and the model is made */
    HANG_LOAD,
    HANG_FIRST, /* the first step of a generation: kernels are chosen, memory is touched */
    HANG_DATA,
    HANG_FORWARD,
    HANG_BACKWARD,
    HANG_OPTIMIZER,
    HANG_COLLECTIVE, /* in a collective of a step */
    HANG_SAVE,
    HANG_OTHER, /* never learned: a checkpoint is published, or the rank is done */
    HANG_CLASSES
};

/* What one look at the progress page of a rank has shown. */
struct hang_sign {
    bool begun; /* it has opened its link */
    uint32_t phase, pass;
    bool first_step; /* of the generation */
};

enum hang_class hang_class_of(const struct hang_sign *sign);
/** The key of a class in the event "hang_bounds"; NULL for HANG_OTHER. */
const char *hang_class_name(enum hang_class class);

struct hang_bounds {
    int64_t limit_ns; /* 0: a rank may be silent for ever */
    int world_size;
    bool loads;                /* the generation loads a checkpoint */
    bool stepped;              /* the generation has ended its first step */
    uint64_t n_steps, n_saves; /* steps and saves that were seen; steps only in worlds of the current size */
    struct {
        int64_t slowest_ns[2]; /* the longest silence in the current window, and in the one before it */
        bool learned;          /* for the classes START to FIRST: a whole generation was seen */
    } seen[HANG_CLASSES];
};

/**
 * A generation begins. Zero the struct before the first one. What was learned of steps is kept only if the
 * world has the same size.
 */
void hang_bounds_begin(struct hang_bounds *bounds, int64_t limit_ns, int world_size, bool loads);
/** So many more steps are done. */
void hang_bounds_steps(struct hang_bounds *bounds, uint64_t n);
/** A save is done. */
void hang_bounds_saved(struct hang_bounds *bounds);
/** A rank was silent for that long, and went on. Time that is excused (hang_silence()) is not silence. */
void hang_bounds_saw(struct hang_bounds *bounds, enum hang_class class, int64_t silent_ns);

bool hang_bounds_learned(const struct hang_bounds *bounds, enum hang_class class);
/** Returns how long a rank may be silent; 0: without limit. */
int64_t hang_bounds_of(const struct hang_bounds *bounds, enum hang_class class);

/*
 * A silent rank is excused for the time in which it could not run. Either it was ready and got no CPU, or it
 * slept in the kernel (state D). Both together excuse a rank for at most HANG_EXCUSED_BOUNDS bounds. So a
 * rank that is stuck in a driver, or on a starved machine, is found too.
 *
 * A rank that reads or writes files (START, LOAD, FIRST, DATA, SAVE) may sleep in the kernel until the run's
 * limit, if that is longer. In most such cases a file system does not answer, and ranks of a new world would
 * wait for it just the same.
 */
enum { HANG_EXCUSED_BOUNDS = 4 };

/* What is excused in one silence of one rank; all zero when the silence begins. */
struct hang_patience {
    int64_t starved_ns, blocked_ns; /* without a CPU; in state D */
    int64_t still_ns;               /* for how long no thread of the rank has run or was ready to run */
    int64_t asked_ns;               /* when `toll` was taken; 0: never */
    struct process_toll toll;
    /*
     * what held the rank at that look and at the look before, if both found the same; pid 0: nothing did, or
     * not the same
     */
    struct process_held held;
};

/** Returns for how much time in state D a rank may be excused; at least HANG_EXCUSED_BOUNDS bounds. */
int64_t hang_bounds_excuse(const struct hang_bounds *bounds, enum hang_class class);

/**
 * Takes the kernel's counts of the rank's process, and excuses the time that they show since the last call.
 */
void hang_excuse(struct hang_patience *patience, int64_t now_ns, const struct process_toll *toll);

/**
 * Returns how long a rank was silent, without the time that is excused.
 *   bound_ns    its bound
 *   blocked_ns  the most time in state D that may be excused: at least HANG_EXCUSED_BOUNDS bounds
 */
int64_t hang_silence(int64_t since_ns, int64_t now_ns, int64_t bound_ns, int64_t blocked_ns,
                     const struct hang_patience *patience);

#endif
