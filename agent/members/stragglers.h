/*
 * Stragglers: ranks of a job for which the others wait. Pure.
 *
 * The times of all ranks are compared in windows of some steps (agent/watch/pace.h). The own time of a rank
 * is the time in which it does not wait for other ranks. A rank is slow in a window if its own time is more
 * than a tenth above the median of all ranks. The excess must also be worth something: 5 ms and 3 % of a
 * step. A rank that is slow in STRAGGLER_WINDOWS windows in a row is a straggler. It stays one until as many
 * windows in a row were even.
 *
 * A busy machine makes no straggler. A rank may be ready to run and have no CPU. That time counts in the
 * median, but not in the time that is compared with it. So an unfair share of the CPUs is never reported.
 *
 * A rank that only waits for others is never reported: waiting is not in its own time.
 */
#ifndef AGENT_STRAGGLERS_H
#define AGENT_STRAGGLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "agent/watch/pace.h"

enum { STRAGGLER_WINDOWS = 5 };

enum straggler_class {
    STRAGGLER_NONE,
    STRAGGLER_COMPUTE, /* it computes longer than the others */
    STRAGGLER_DATA,    /* it waits longer for its data */
    STRAGGLER_IDLE,    /* the rank neither computes nor reads data: it sleeps, or something stops it */
};

/* A rank that became a straggler, or stopped being one. */
struct straggler_news {
    int rank;
    enum straggler_class class; /* STRAGGLER_NONE: the rank is no straggler any more */
    int64_t step;               /* the last of the window that decided */
    double own_s, median_s;     /* the rank's own time per step, and the median of all ranks */
    double step_s;              /* the time of a step */
};

struct stragglers {
    int n_ranks; /* 0: nothing is watched */
    struct straggler_rank {
        /* the rank's report in the current window; n_steps 0: it has not reported */
        struct pace pace;
        enum straggler_class class; /* as it was reported */
        int n_slow, n_even;         /* windows in a row */
    } * ranks;                      /* (n_ranks) */
    int n_reported;
    struct straggler_news *news; /* (n_ranks) */
    double *scratch;             /* (n_ranks) */
};

/**
 * Begin with the ranks of a generation, of which nothing is known. A single rank has nothing to be compared
 * with, and is not watched. The struct is all zero before the first call.
 *   FSDP_ERR_NOMEM  nothing is watched until the next call
 */
enum fsdp_status stragglers_begin(struct stragglers *stragglers, int n_ranks, struct fsdp_err *err);
/** Free what stragglers_begin() took. */
void stragglers_fini(struct stragglers *stragglers);

/**
 * Take what a rank spent in a window. If a rank reports twice before all others have reported, the second
 * report replaces the first. Once every rank has reported they are compared, and the next window begins.
 *
 *   pace  of a rank of this generation
 *   news  receives the ranks whose class has changed, valid until the next call
 *
 * Returns the number of `news`.
 */
int stragglers_take(struct stragglers *stragglers, const struct pace *pace,
                    const struct straggler_news **news);

/** The name of a class, "compute", "data" or "idle"; "none". */
const char *straggler_class_name(enum straggler_class class);

#endif
