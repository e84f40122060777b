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
 * limits. On several nodes a node hears of the signs that others saw up to 3 limits later, so there after 7
 * to 10. A rank that has used its heartbeat is silent since its last beat, whatever else is seen.
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
    int64_t shown_ns; /* the last one; at first when the generation began */
    bool shown;       /* there was one */
};

/** How long a rank without a heartbeat may be silent. */
int64_t hang_life_bound(const struct hang_life *life);

/** Do weak signs still count? */
bool hang_life_takes_weak(const struct hang_life *life, int64_t now_ns);

/**
 * Should the node ask what strong signs others have seen? Yes if it has seen none for 3 limits, and asked
 * last a limit ago.
 */
bool hang_life_wants_news(const struct hang_life *life, int64_t now_ns, int64_t asked_ns);

/* What a rank and its descendants had used when they were looked at last; all zero: they never were. */
struct hang_sample {
    int64_t taken_ns;
    struct process_usage usage;
};

/**
 * Is it time to take hang_life_works()? Four times a limit, from a quarter of it after the last strong sign
 * on.
 */
bool hang_life_wants_sample(const struct hang_life *life, const struct hang_sample *sample, int64_t now_ns);

/** Takes the next look. Returns whether the processes have shown a weak sign since the one before. */
bool hang_life_works(struct hang_sample *sample, int64_t now_ns, const struct process_usage *usage);

/**
 * Returns how long ago any rank showed a strong sign. -1: it is not known, because a rank has not answered,
 * or is one that its node does not watch. `store_ns` as below.
 */
int64_t hang_life_shown(const struct hang_rank *rows, int n, int64_t store_ns);

/**
 * No rank without a heartbeat is silent for longer than since the last strong sign of any: shortens their
 * silences. For ranks whose progress pages are judged (hang_verdict.h). `shown_ns` is not negative.
 */
void hang_life_share(struct hang_rank *rows, int n, int64_t shown_ns);

/**
 * Judges the rows of ranks 0 to n - 1. Some of them may show steps: of these it counts whether they wait in
 * a collective.
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
 * A rank that waits is excused while another one, which is known not to wait, gives weak signs.
 * None is named while another one has been silent for between half and all of its limit: what that one does
 * is not known yet.
 */
void hang_life_judge(struct hang_verdict *verdict, const struct hang_rank *rows, int n, int64_t store_ns);

#endif
