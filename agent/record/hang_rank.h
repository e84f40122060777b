/*
 * What is known of a hang: a row for each rank, and the verdict on all rows. A node fills in the rows of its
 * ranks (agent/watch/hang_read.h), and the coordinator's node judges them (agent/watch/hang_verdict.h).
 *
 *   silent   for how long a rank has shown no sign of life
 *   bound    for how long it may be silent
 *   suspect  a rank that was silent for longer than its bound
 *   waiter   a rank in a collective that others have not reached
 *   culprit  the rank for which the others wait
 */
#ifndef AGENT_HANG_RANK_H
#define AGENT_HANG_RANK_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/link.h>

enum { HANG_GROUP_BYTES = 64, HANG_CALL_BYTES = 20, HANG_LISTED = 2 };
/*
 * A rank that waits in a collective wakes many times a second to look for lost ranks. So only a rank whose
 * threads all slept for so long counts as still.
 */
enum { HANG_STILL_S = 3 };

/* A group that the rank is in. Ranks of one group have the same name for it. */
struct hang_group {
    char name[HANG_GROUP_BYTES];
    int first, stride, size; /* member i of the group is rank first + i * stride; stride 0: not known */
    /* the numbers of the newest collective that the rank has begun, and that it has completed */
    uint64_t begun, ended;
};

struct hang_rank {
    int rank, local_rank, pid;
    int node;      /* number of its node in the generation */
    bool answered; /* false: the rank's node did not answer, so only rank and node are set */
    bool live;     /* its process was not reaped */
    int state;     /* the process's state as in /proc: 'R', 'S', 'D', 'T', ...; '?': unknown */
    bool still;    /* the process sleeps, and none of its threads has run for HANG_STILL_S */
    int64_t silent_ns;
    int64_t bound_ns; /* 0: it may be silent for ever */
    /*
     * With --hang-timeout: how long ago its node has seen a strong sign of life (agent/watch/hang_life.h) of
     * any rank. 0: its node does not look for signs.
     */
    int64_t shown_ns;
    bool hearts;  /* ... and it has used its heartbeat */
    bool program; /* ... and it shows no progress page */
    /*
     * the rank's Python stack is known: `layer` is the line at which the program is, and `waits` says whether
     * that line waits
     */
    bool python;
    int pass;                     /* enum fsdp_phase, without COLLECTIVE and WAIT */
    int64_t step;                 /* -1: it is in none yet */
    bool waits;                   /* for an answer through the agent */
    char layer[HANG_GROUP_BYTES]; /* the module or unit in which the rank is; empty: in none */
    /*
     * The collective in which the rank is: `group` is its place in `groups` (-1: the rank is in no
     * collective), and `sequence` the collective's number in that group. `queued`: the rank's process is not
     * inside it, but its GPU has not completed it.
     */
    int group;
    uint64_t sequence, size_bytes;
    char kind[HANG_CALL_BYTES]; /* "all_gather" */
    bool queued;
    int peer,
        /*
         * the first rank whose bytes are missing in that collective (-1: not known), and how many ranks'
         * bytes are missing
         */
        n_missing;
    int n_groups;
    struct hang_group groups[FSDP_GROUPS];
};

enum hang_kind {
    HANG_NONE,  /* no rank is known to hang */
    HANG_STUCK, /* the culprit makes no progress by itself */
    HANG_LINK,  /* no data passes between the two culprits */
    /* the culprits call different collectives, or call them in another order than other ranks */
    HANG_MISMATCH,
};

struct hang_verdict {
    enum hang_kind kind;
    int ranks[HANG_LISTED], n_ranks; /* the culprits; the first is the one to name */
    int64_t again_ns; /* with HANG_NONE: when to judge again, from now; 0: no rank is silent for too long */
    /*
     * The collective in which most other ranks wait: `waiter` is one of these ranks (-1: there is none),
     * n_waiters their number.
     */
    int waiter, n_waiters;
};

/** Returns the phase (enum fsdp_phase) that reports name for the rank. */
int hang_rank_phase(const struct hang_rank *rank);

/** Returns the name of a kind, "stuck", .... */
const char *hang_kind_name(enum hang_kind kind);

enum { HANG_WORDS_BYTES = 256 };

/**
 * Writes the verdict on `rows` (one for each rank) in words for the user: how long there was no progress,
 * where, and which ranks wait. At most HANG_WORDS_BYTES. Returns `out`.
 */
const char *hang_words(const struct hang_verdict *verdict, const struct hang_rank *rows, char *out);

#endif
