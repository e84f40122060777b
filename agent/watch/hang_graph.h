/*
 * Which ranks wait for which, as the rows of all ranks show it: agent/watch/hang_verdict.h has the rules. The
 * graph is never built in memory. A caller pushes some ranks into a queue, and follows each rank of the queue
 * in turn: hang_graph_follow() pushes those that it waits for. Pure.
 */
#ifndef AGENT_HANG_GRAPH_H
#define AGENT_HANG_GRAPH_H

#include <string.h>

#include "agent/record/hang_rank.h"

/* A rank in a group that it has opened. */
struct hang_member {
    const struct hang_group *group;
    int rank;
};

/* The ranks that are inside one collective. */
struct hang_inside {
    uint64_t sequence; /* 0: nothing was looked at */
    bool mixed;        /* they differ in its kind or size */
    int moving;        /* a member that was not silent for too long; -1: there is none */
};

/* What is known of a group, and which of its members were followed already. */
struct hang_followed {
    int n_late;                /* how many ranks began the fewest collectives */
    bool absent_known, absent; /* whether some ranks have not opened the group, if known */
    struct hang_inside inside; /* the collective that was examined last */
};

/* The ranks whose answers were followed already. */
struct hang_answerers {
    bool known, any;
};

struct hang_graph {
    const struct hang_rank *rows;
    int n;
    /* (n_members) of live ranks, sorted: the members of a group are neighbours */
    struct hang_member *members;
    int n_members;
    /* (n_members) the place of a group's first member has what is known of the group */
    struct hang_followed *followed;
    bool *seen; /* (n) */
    int *queue; /* (n) ranks that were pushed; those from place `at` on must still be followed */
    int n_queued, at;
    struct hang_answerers opening, publishing;
    int mismatch; /* the lowest rank in a collective whose ranks differ in its kind or size; -1: none */
};

static inline bool hang_is_suspect(const struct hang_rank *row)
{
    return row->answered && row->live && row->bound_ns > 0 && row->silent_ns > row->bound_ns;
}

static inline bool hang_is_stopped(const struct hang_rank *row)
{
    return row->state == 'T' || row->state == 't' || row->state == 'Z';
}

static inline bool hang_is_inside(const struct hang_rank *row)
{
    return row->group >= 0;
}

/*
 * Is the rank inside a collective, but no longer looking whether it is complete? Then something else keeps it
 * from running.
 */
static inline bool hang_is_held(const struct hang_rank *row)
{
    return hang_is_inside(row) && !row->queued && row->still;
}

static inline bool hang_is_waiting(const struct hang_rank *row)
{
    return hang_is_inside(row) || row->waits;
}

static inline const struct hang_group *hang_group_of(const struct hang_rank *row)
{
    return &row->groups[row->group];
}

static inline bool hang_in_same(const struct hang_rank *a, const struct hang_rank *b)
{
    return hang_is_inside(b) && a->sequence == b->sequence &&
           strcmp(hang_group_of(a)->name, hang_group_of(b)->name) == 0;
}

static inline bool hang_call_alike(const struct hang_rank *a, const struct hang_rank *b)
{
    return hang_in_same(a, b) && strcmp(a->kind, b->kind) == 0 && a->size_bytes == b->size_bytes;
}

/** Begins with no rank. Returns false if there is no memory; hang_graph_fini() is called then, too. */
bool hang_graph_init(struct hang_graph *graph, const struct hang_rank *rows, int n);
void hang_graph_fini(struct hang_graph *graph);

/** Adds a rank to the queue, unless it was added before or has ended. */
void hang_graph_push(struct hang_graph *graph, int rank);
/** Pushes the ranks that `row` waits for. Returns false if there are none: `row` is then a sink. */
bool hang_graph_follow(struct hang_graph *graph, const struct hang_rank *row);
/**
 * Pushes the members that have not begun the collective in which `row` is. Returns whether there are any.
 */
bool hang_graph_push_late(struct hang_graph *graph, const struct hang_rank *row);
/** Looks at all ranks inside the collective in which `row` is. Valid until the next call for its group. */
const struct hang_inside *hang_graph_inside(struct hang_graph *graph, const struct hang_rank *row);

#endif
