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
/* Who waits in a collective wakes many times a second, to see whether others are gone. */
enum { HANG_STILL_S = 3 };

/* A group that the rank is in. Ranks of one group have the same name for it. */
struct hang_group {
    char name[HANG_GROUP_BYTES];
    int first, stride, size; /* member i is rank first + i * stride; stride 0: not known */
    uint64_t begun, ended;   /* numbers of the newest collective that it began, and that ended */
};

struct hang_rank {
    int rank, local_rank, pid;
    int node;      /* number of its node in the generation */
    bool answered; /* false: its node did not answer, and only rank and node are set */
    bool live;     /* its process was not reaped */
    int state;     /* the process's state as in /proc: 'R', 'S', 'D', 'T', ...; '?': unknown */
    bool still;    /* it sleeps, and none of its threads ran for HANG_STILL_S */
    int64_t silent_ns;
    int64_t bound_ns; /* 0: it may be silent for ever */
    /*
     * With --hang-timeout: how long ago its node has seen a strong sign of any rank, as told in
     * agent/watch/hang_life.h. 0: its node does not watch what programs show.
     */
    int64_t shown_ns;
    bool hearts;  /* ... and it has used its heartbeat */
    bool program; /* ... and it shows no progress page */
    bool python;  /* ... and its Python stack is known: `layer` is its line, and `waits` what it does there */
    int pass;     /* enum fsdp_phase, without COLLECTIVE and WAIT */
    int64_t step; /* -1: it is in none yet */
    bool waits;   /* for an answer through the agent */
    char layer[HANG_GROUP_BYTES]; /* or unit, that it is at; empty: in none */
    /*
     * The collective in which it is: in[group] of `groups`, and the collective's number there. -1: in none.
     * A collective that a GPU has not done counts too, if the rank is in no other (`queued`).
     */
    int group;
    uint64_t sequence, size_bytes;
    char kind[HANG_CALL_BYTES]; /* "all_gather" */
    bool queued;
    int peer,
        n_missing; /* the first rank whose bytes are missing there, and how many are; -1, 0: not known */
    int n_groups;
    struct hang_group groups[FSDP_GROUPS];
};

enum hang_kind {
    HANG_NONE,     /* no rank is known to hang */
    HANG_STUCK,    /* the culprit makes no progress by itself */
    HANG_LINK,     /* no data passes between the two culprits */
    HANG_MISMATCH, /* the culprits call different collectives, or in another order than others */
};

struct hang_verdict {
    enum hang_kind kind;
    int ranks[HANG_LISTED], n_ranks; /* the culprits; the first is the one to name */
    int64_t again_ns; /* with HANG_NONE: judge again after this time; 0: no rank is silent for too long */
    /* The collective in which most other ranks are: the row of one of them, and how many; -1, 0: none is. */
    int waiter, n_waiters;
};

/** Returns the phase by which a report names the place of the rank: an enum fsdp_phase. */
int hang_rank_phase(const struct hang_rank *rank);

/** Returns the name of a kind, "stuck", .... */
const char *hang_kind_name(enum hang_kind kind);

enum { HANG_WORDS_BYTES = 256 };

/**
 * Writes the verdict on `rows` (one for each rank) as words for the user: for how long no progress was seen,
 * where, and who waits. It is cut to HANG_WORDS_BYTES. Returns `out`.
 */
const char *hang_words(const struct hang_verdict *verdict, const struct hang_rank *rows, char *out);

#endif
