/*
 * If ranks of a world are silent for too long, which rank is the cause? Pure.
 *
 * The rows of all ranks make a graph: who waits for whom. It is followed from every suspect. Where it ends
 * are the sinks: ranks that wait for no other rank.
 *
 *   1. A rank inside collective s of a group waits for each member that has not begun s.
 *   2. If all members have begun s, it waits for the peer whose bytes are missing. Without a known peer it
 *      waits for those ranks of its node, inside the same collective, that miss bytes or do not run. If
 *      there are none, it was left inside, and is a sink. It is excused while another rank that is inside
 *      was not silent for longer than its bound. A rank none of whose threads runs any more does not wait
 *      for a peer: it is a sink, and is not excused.
 *   3. A rank that waits for an answer through the agent waits for the ranks that are starting, opening or
 *      loading. If it waits for a checkpoint to be published, it waits for all ranks that do not wait.
 *   4. A stopped rank is a sink, wherever it is. So is a rank whose node did not answer.
 *   5. A rank that has ended is waited for by no other: the ranks that need it see its end themselves.
 *
 * The verdict, by the first rule that fits:
 *   1. A sink that is silent for longer than its bound is stuck. Among several comes first: a stopped one,
 *      one in uninterruptible sleep, one that does not run inside a collective, one that starts or opens, one
 *      in no collective. Among equals: the lower step, fewer collectives, the longer silence, the lower rank.
 *   2. Members inside one collective that differ in its kind or size are a mismatch.
 *   3. Any other sink may go on by itself, so all who wait for it are excused: no verdict yet.
 *   4. There is no sink, so ranks wait for each other in a circle. No verdict before each of them is silent
 *      for longer than its bound. If bytes of a peer are missing, the link is broken. Else the ranks call
 *      collectives in different orders, which is a mismatch.
 */
#ifndef AGENT_HANG_VERDICT_H
#define AGENT_HANG_VERDICT_H

#include <stdbool.h>

#include "agent/record/hang_rank.h"

/**
 * Judges the rows.
 *
 *   rows  (n) of ranks 0 to n - 1, in this order
 *
 * Returns false if there is no memory for it. Takes O(n log n) for a fixed number of groups per rank.
 */
bool hang_verdict_reach(struct hang_verdict *verdict, const struct hang_rank *rows, int n);

#endif
