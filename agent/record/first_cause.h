/*
 * Which of many deaths began it, what status it means, and whether trying again can help. Pure.
 *
 * A death is a consequence, never the first cause while there is another, when
 *   - it came after we had asked the worker to stop and looks like it: killed by a signal we sent, or any
 *     exit code (a program's handler of TERM may return what it likes);
 *   - the worker says so itself: it left with 75 or 76 because a peer or its link was gone. Only a worker that has
 *     opened its link, so one that uses our library, says that by these statuses; a program may mean anything.
 * Of several causes the first in time is taken. A death is seen by its node's coordinator when it is told of it;
 * where the worker's error file says when it raised, it counts from then (age_ns, measured on its own host, so that
 * clocks of different hosts are never compared): a rank that is slow to die after it raised is still the first.
 *
 * A signal that we never sent is a cause whenever it is seen: the kernel announces a death only once its memory
 * is freed, which for a big process is long after its peers have noticed.
 */
#ifndef AGENT_FIRST_CAUSE_H
#define AGENT_FIRST_CAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/link.h>

enum death_kind {
    DEATH_NONE, /* it ended well: exit code 0 (or 77 after a notice) */
    DEATH_EXIT,
    DEATH_SIGNAL,
    DEATH_SPAWN, /* it could not be started: `code` is 126, 127, or 75 where the system refused */
    DEATH_HANG,  /* no progress: `code` is the signal that will end it */
    DEATH_STUCK, /* the same, in the kernel, where no signal reaches it */
    DEATH_NODE,  /* its node, or the link to it, is lost */
};

/*
 * What is known of the phase of a program, and of a worker of ours before it opens its link. In struct death.phase,
 * after those of link.h.
 */
enum program_phase {
    PROGRAM_STARTING = 64, /* it has not come to the store where the ranks meet */
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
    int sent_signal; /* the signal by which we had asked it to end before; 0: we had not */
    bool killed;     /* we had sent it KILL */
    int64_t when_ns; /* CLOCK_MONOTONIC of the coordinator's host, when it was seen */
    int64_t age_ns;  /* how long before it was seen it had raised, by its error file; 0: unknown */
    bool oom_kill;   /* the kernel's OOM killer ended it */
    int64_t step;    /* -1: unknown */
    int phase;       /* enum fsdp_phase or program_phase; -1: there was no process */
    char host[DEATH_HOST_BYTES];
    char words[DEATH_WORDS_BYTES]; /* more about it; may be empty */
};

/** The index of the first cause, or -1 when none of them failed. */
int first_cause_find(const struct death *deaths, size_t n);

/** Did it die only because something else had happened? */
bool first_cause_is_consequence(const struct death *death);

/** Did it leave with the status by which a worker of ours says that a peer, or its link, was gone? */
bool first_cause_blames_another(const struct death *death);

/** Did it leave because its loss or gradient was no number, in death->step? */
bool first_cause_is_divergence(const struct death *death);

/** fsdprun's exit status for this cause. */
int first_cause_status(const struct death *death);

/**
 * Would the next generation end the same way, or not begin? A program that cannot be executed; a worker that cannot
 * be killed, and holds what the next one would need; and of our own
 * trainer usage, input, I/O and configuration errors, which it has told.
 */
bool first_cause_is_final(const struct death *death, bool job);

/** "forward", ... for enum fsdp_phase, "starting", ... for enum program_phase; NULL when out of range. */
const char *first_cause_phase_name(int phase);
/** In words for the line, "before rendezvous", ..., where the name alone would not do; NULL for all others. */
const char *first_cause_phase_words(int phase);

#endif
