/*
 * How long a rank of a job may give no sign of life: bounds that are learned from the run.
 *
 * Not the length of a phase is measured, but how long ranks of this node were silent in it. Silence is the
 * time between two changes of a progress page, without what is excused. A bound is 5 times the longest
 * silence that was seen. It is at least 10 s in a step, and 30 s where disks and drivers are waited for. It
 * is never more than the run's limit (launch.hang_timeout_s). Until a class of silences is learned, its bound
 * is the limit.
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
    HANG_OPEN,  /* groups and devices are opened, the model is made */
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

/* A look at the progress page of a rank. */
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
    uint64_t n_steps, n_saves; /* that were seen, the steps in worlds of this size */
    struct {
        int64_t slowest_ns[2]; /* in the window that runs, and in the one before */
        bool learned;          /* for START to FIRST: a whole generation was seen */
    } seen[HANG_CLASSES];
};

/**
 * A generation begins. All zero before the first one. What was learned of steps holds only for worlds of the
 * same size.
 */
void hang_bounds_begin(struct hang_bounds *bounds, int64_t limit_ns, int world_size, bool loads);
/** So many more steps are done. */
void hang_bounds_steps(struct hang_bounds *bounds, uint64_t n);
/** A save is done. */
void hang_bounds_saved(struct hang_bounds *bounds);
/** A rank was silent for that long, and went on. Time that is excused (hang_silence()) is not silence. */
void hang_bounds_saw(struct hang_bounds *bounds, enum hang_class class, int64_t silent_ns);

bool hang_bounds_learned(const struct hang_bounds *bounds, enum hang_class class);
/** How long a rank may be silent; 0: for ever. */
int64_t hang_bounds_of(const struct hang_bounds *bounds, enum hang_class class);

/*
 * A silent rank is excused for the time in which it could not run. Either it was ready and got no CPU, or it
 * slept in the kernel (state D). Both together excuse at most HANG_EXCUSED_BOUNDS bounds, so that a rank
 * which is stuck on a starved machine, or in a driver, is found too.
 *
 * A rank that reads or writes files (START, LOAD, FIRST, DATA, SAVE) may sleep in the kernel until the run's
 * limit, if that is longer. Usually a file system does not answer, and a new world would need the same one.
 */
enum { HANG_EXCUSED_BOUNDS = 4 };

/* Of one silence of one rank; all zero at its beginning. */
struct hang_patience {
    int64_t starved_ns, blocked_ns; /* without a CPU; in state D */
    int64_t still_ns;               /* how long no thread of it ran or was ready to */
    int64_t asked_ns;               /* when `toll` was taken; 0: never */
    struct process_toll toll;
    struct process_held held; /* that toll and the one before found it held alike; pid 0: none */
};

/** Of how much time in state D a rank may be excused; at least HANG_EXCUSED_BOUNDS bounds. */
int64_t hang_bounds_excuse(const struct hang_bounds *bounds, enum hang_class class);

/** Take what the kernel counts now, and excuse what has passed since the last time. */
void hang_excuse(struct hang_patience *patience, int64_t now_ns, const struct process_toll *toll);

/**
 * How long a rank was silent on a clock that stands while it is excused.
 *   bound_ns    its bound
 *   blocked_ns  of so much time in state D it may be excused: at least HANG_EXCUSED_BOUNDS bounds
 */
int64_t hang_silence(int64_t since_ns, int64_t now_ns, int64_t bound_ns, int64_t blocked_ns,
                     const struct hang_patience *patience);

#endif
