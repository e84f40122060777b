/*
 * Signs of life of a program's ranks (--hang-timeout SECONDS), and who is blamed when there are none.
 *
 *   strong  output, a change of a key in the store, a step of a program that uses our library. It counts for
 *           all ranks of the world: while one rank prints, others may wait for it.
 *   weak    CPU time (5 % of a core or more) together with page faults or calls that read or write. Or a GPU
 *           of the node that is busy and uses its memory. It counts for this rank alone. A rank that spins
 *           while it waits for others gives none.
 *
 * A rank is silent since its last weak sign or the last strong one, whichever is later. Weak signs count only
 * for 9 limits after the last strong one. So a rank that shows nothing else is silent for too long after 10
 * limits. On several nodes this takes 7 to 10 limits, because a node learns of another node's signs up to 3
 * limits late. A rank that has used its heartbeat is silent since its last beat, whatever else is seen.
 *
 * The ranks hang if no node saw a strong sign for a limit, and some rank was silent for a limit. They also
 * hang if some heartbeat has stopped for a limit. Programs start slowly. So the limit of a node's ranks is at
 * least a minute as long as the node has seen no strong sign in the generation.
 *
 * Pure: times are arguments.
 */
#ifndef AGENT_HANG_LIFE_H
#define AGENT_HANG_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/os/process_look.h"
#include "agent/record/hang_rank.h"

/* The strong signs that a node has seen in a generation. */
struct hang_life {
    int64_t limit_ns; /* 0: the ranks are not watched */
    int64_t shown_ns; /* when the last one was seen; at first, when the generation began */
    bool shown;       /* there was one */
};

/** Returns for how long a rank without a heartbeat may be silent. */
int64_t hang_life_bound(const struct hang_life *life);

/** Do weak signs still count? */
bool hang_life_takes_weak(const struct hang_life *life, int64_t now_ns);

/**
 * Should the node ask what strong signs others have seen? Yes if it has seen none for 3 limits, and asked
 * last a limit ago.
 */
bool hang_life_wants_news(const struct hang_life *life, int64_t now_ns, int64_t asked_ns);

/* What a rank and its descendants had used at the last look; all zero: there was no look yet. */
struct hang_sample {
    int64_t taken_ns;
    struct process_usage usage;
};

/**
 * Is it time to call hang_life_works()? The calls are a quarter of a limit apart, and begin a quarter after
 * the last strong sign.
 */
bool hang_life_wants_sample(const struct hang_life *life, const struct hang_sample *sample, int64_t now_ns);

/** Takes a new look at the processes. Returns whether they have shown a weak sign since the look before. */
bool hang_life_works(struct hang_sample *sample, int64_t now_ns, const struct process_usage *usage);

/**
 * Returns how long ago any rank showed a strong sign. -1: not known, because some rank has not answered, or
 * its node does not watch it. `store_ns` is as in hang_life_judge().
 */
int64_t hang_life_shown(const struct hang_rank *rows, int n, int64_t store_ns);

/**
 * Shortens the silence of each rank without a heartbeat to the time since the last strong sign of any rank.
 * For ranks that are judged by their progress pages (hang_verdict.h). `shown_ns` is not negative.
 */
void hang_life_share(struct hang_rank *rows, int n, int64_t shown_ns);

/**
 * Judges the rows of ranks 0 to n - 1. Some of them may show steps on a progress page: for these it matters
 * whether they wait in a collective.
 *
 *   store_ns  how long ago a key of the store was changed; INT64_MAX: there is no store, or never
 *
 * The first of these rules that finds a rank names the culprit:
 *   1. a stopped rank;
 *   2. one in state D;
 *   3. one whose heartbeat stopped;
 *   4. one that has not come to the store;
 *   5. one that does not wait for others, by its Python stack or its progress page;
 *   6. one at a line where the fewest ranks are;
 *   7. the one that is silent for longest, then the lowest.
 * A rank that waits is excused while another one, which is known not to wait, gives weak signs. None is named
 * while another one has been silent for between half and all of its limit: what that one does is not known
 * yet.
 */
void hang_life_judge(struct hang_verdict *verdict, const struct hang_rank *rows, int n, int64_t store_ns);

#endif
