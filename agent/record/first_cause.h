/*
 * Decides which of many deaths was the first cause, which exit status it means, and whether another try can
 * help. Pure.
 *
 * A death is a consequence in two cases. A consequence is taken as the first cause only if there is nothing
 * else:
 *   - We had asked the worker to stop before, and the death fits that. It was killed by a signal that we had
 *     sent, or it exited, with any code: a program's handler of TERM may return anything.
 *   - The worker itself says so: it exited with 75 or 76 because a peer or its link was gone. This holds only
 *     for a worker that had opened its link, so one that uses our library. For other programs these codes
 *     mean nothing.
 *
 * Of several causes the earliest one wins. A death's time is when it was seen (when_ns). If the worker's
 * error file says when it raised, that time counts instead (age_ns). It is measured on the worker's own host,
 * so clocks of different hosts are never compared. So a rank that raised first and died slowly is still
 * first.
 *
 * A signal that we never sent is a cause whenever it is seen. The kernel reports a death only after it has
 * freed the memory, and for a big process that is long after its peers have noticed.
 */
#ifndef AGENT_FIRST_CAUSE_H
#define AGENT_FIRST_CAUSE_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/link.h>

enum death_kind {
    DEATH_NONE, /* the worker ended well: exit code 0 (or 77 after a notice) */
    DEATH_EXIT,
    DEATH_SIGNAL,
    DEATH_SPAWN, /* the worker could not be started: `code` is 126, 127, or 75 if the system refused */
    DEATH_HANG,  /* the worker made no progress: `code` is the signal that will end it */
    DEATH_STUCK, /* the worker made no progress, and sleeps in the kernel, where no signal reaches it */
    DEATH_NODE,  /* the worker's node, or the connection to that node, is lost */
};

/*
 * The phase of a program, and of a worker of ours before it opens its link, as far as it is known. In struct
 * death.phase these values follow those of link.h.
 */
enum program_phase {
    PROGRAM_STARTING = 64, /* the program has not connected to the store where the ranks meet */
    PROGRAM_RENDEZVOUS,    /* it has, and others have not */
    PROGRAM_RUNNING,       /* all have */
    PROGRAM_STOPPING,      /* it had been asked to end */
};

enum { DEATH_WORDS_BYTES = 256, DEATH_HOST_BYTES = 65 };

struct death {
    enum death_kind kind;
    int rank, local_rank, node_rank;
    int pid;
    int code;        /* exit code, or signal */
    int sent_signal; /* the signal by which we had asked the worker to end; 0: we had not */
    bool killed;     /* we had sent it KILL */
    int64_t when_ns; /* when the death was seen, by CLOCK_MONOTONIC of the coordinator's host */
    /*
     * how much earlier than `when_ns` the worker had failed: by its error file; if that has no time, at
     * least how long its report waited; 0: unknown
     */
    int64_t age_ns;
    /* for a hang: for how long the worker had shown no progress when that was noticed; else 0 */
    int64_t silent_ns;
    bool oom_kill; /* the kernel's OOM killer ended it */
    int64_t step;  /* -1: unknown */
    int phase;     /* enum fsdp_phase or program_phase; -1: the process never existed */
    char host[DEATH_HOST_BYTES];
    char words[DEATH_WORDS_BYTES]; /* more about it; may be empty */
};

/**
 * Finds the first cause of many deaths, with one call for each death in the order in which they are seen.
 * `cause` is the first cause so far; NULL: none. Returns whether `death` takes its place.
 */
bool first_cause_is_better(const struct death *death, const struct death *cause);

/** Returns whether the worker died only as a consequence of something else. */
bool first_cause_is_consequence(const struct death *death);

/** Returns whether a worker of ours exited with the code that says that a peer, or its link, was gone. */
bool first_cause_blames_another(const struct death *death);

/** Returns whether a worker of ours ended because its loss or gradient at death->step was not finite. */
bool first_cause_is_divergence(const struct death *death);

/** Returns fsdprun's exit status for this cause. */
int first_cause_status(const struct death *death);

/**
 * Returns whether another generation is pointless, because it would end the same way or could not begin:
 *   - The program cannot be executed.
 *   - The worker cannot be killed, and holds what the next one would need.
 *   - Our own trainer (`job`) ended with a usage, input, I/O or configuration error.
 */
bool first_cause_is_final(const struct death *death, bool job);

/**
 * Returns the name of a phase: "forward", ... of a worker of ours, "starting", ... of a program. NULL: out of
 * range.
 */
const char *first_cause_phase_name(int phase);
/**
 * Returns the words for a phase, such as "before rendezvous", if its name alone does not say enough; else
 * NULL.
 */
const char *first_cause_phase_words(int phase);

#endif
