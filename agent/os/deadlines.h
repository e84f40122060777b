/*
 * How long the parts of a run wait for one another at its end, in the order in which they wait. Each part
 * takes its limit from here. The guard waits for all parts, so its own limit is the sum of theirs, and grows
 * with each of them.
 */
#ifndef AGENT_DEADLINES_H
#define AGENT_DEADLINES_H

enum {
    /* how long a node may be silent before it is lost; the default of --rdzv-conf lease */
    LEASE_MS = 3000,
    LEASE_BEATS = 10,    /* questions that a node asks the coordinator in one lease */
    LEASE_KILL_MS = 250, /* the time in which the guard must kill the ranks of a node whose lease is over */
    /* the longest grace of workers whose world has lost a node: they can finish no collective any more */
    LOST_GRACE_MS = 5000,
    /* how long to wait for the end of processes that got KILL; after that they are not waited for */
    KILL_MS = 5000,
    DRAIN_MS = 1000, /* how long processes that a finished worker left running have between TERM and KILL */
    /*
     * how long a reader of the output may take nothing; for a terminal, which may be slow, the limit for all
     * of it
     */
    OUTPUT_STALL_MS = 5000,
    OUTPUT_TERMINAL_MS = 10000,
    DISK_WAIT_MS = 5000,  /* for a disk that does not answer */
    DISK_SLOW_MS = 10000, /* after a signal: how long a slow disk has, in all, to write its lines */
    LAST_WORD_MS = 1000,  /* how long a reader of stderr has to take the last line */
};

enum {
    /*
     * from KILL to the report that a node is down: for the workers, and then for processes that they left
     * running
     */
    DOWN_MS = DRAIN_MS + KILL_MS + KILL_MS,
    GUARD_RESERVE_MS = 5000, /* for a machine that is busy */
    /*
     * How long the agent may take after the grace period, before the guard kills it. LEASE_END_MS() is in it
     * twice: until a silent node counts as lost, and until nodes that were cut off have come back for the
     * last messages.
     */
    GUARD_SLACK_MS = DOWN_MS + DISK_SLOW_MS + OUTPUT_TERMINAL_MS + OUTPUT_STALL_MS + DISK_WAIT_MS +
                     LAST_WORD_MS + GUARD_RESERVE_MS,
};

/*
 * The longest wait until a silent node is noticed: the lease, and the time until the next look at the node.
 */
#define LEASE_END_MS(lease_ms) ((lease_ms)*11 / 10)

/*
 * How long the ranks of a node may run without an answer of the coordinator. A session survives a silence
 * that is shorter than the lease, and the last answer may be a beat old when the silence begins. So it is a
 * sixth longer: no rank is killed for a silence that its session survives.
 */
#define LEASE_RANKS_MS(lease_ms) ((lease_ms)*7 / 6)
/* The inverse of LEASE_RANKS_MS(): the lease for which the ranks may run for `ranks_ms`. */
#define LEASE_OF_RANKS_MS(ranks_ms) (((ranks_ms)*6 + 6) / 7)

/*
 * How long after its last answer to a node the coordinator waits, until surely no rank of that node runs. A
 * tenth is added for clocks that run at different rates.
 */
#define LEASE_FENCE_MS(lease_ms) (LEASE_END_MS(LEASE_RANKS_MS(lease_ms)) + LEASE_KILL_MS)

/*
 * A job that has lost a node, and has no restart left, ends on every node within 10 s (docs/operations.md).
 */
_Static_assert(LEASE_END_MS(LEASE_MS) + LOST_GRACE_MS <= 10000 - 1000,
               "KILL and the report have the last second");

#endif
