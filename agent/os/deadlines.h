/*
 * How long the parts of a run wait for one another at its end, in the order in which they wait. Each part
 * uses its bound from here. The guard waits for all of them, so its own bound is their sum: a bound that
 * grows moves it too.
 */
#ifndef AGENT_DEADLINES_H
#define AGENT_DEADLINES_H

enum {
    LEASE_MS = 3000,     /* a node that is silent for so long is lost; the default of --rdzv-conf lease */
    LEASE_BEATS = 10,    /* questions that a node asks the coordinator in one lease */
    LEASE_KILL_MS = 250, /* what the guard may take to kill the ranks of a node whose lease is over */
    /* the longest grace of workers whose world has lost a node: they can finish no collective any more */
    LOST_GRACE_MS = 5000,
    KILL_MS = 5000,  /* for processes that were sent KILL; then they are left behind */
    DRAIN_MS = 1000, /* for processes that a finished worker left running, between TERM and KILL */
    /* for a reader of the output that takes nothing; for a terminal, which may be slow, in all */
    OUTPUT_STALL_MS = 5000,
    OUTPUT_TERMINAL_MS = 10000,
    DISK_WAIT_MS = 5000,  /* for a disk that does not answer */
    DISK_SLOW_MS = 10000, /* after a signal, for a disk that is slow: in all, until its lines are written */
    LAST_WORD_MS = 1000,  /* for a reader of stderr that does not take the last line */
};

enum {
    /* between KILL and the report that a node is down: the workers, then what they left running */
    DOWN_MS = DRAIN_MS + KILL_MS + KILL_MS,
    GUARD_RESERVE_MS = 5000, /* for a machine that is busy */
    /*
     * what the agent may take after the grace, until the guard kills it. LEASE_END_MS() is added twice: until
     * a silent node is taken for lost, and for cut-off nodes that come back for the last messages
     */
    GUARD_SLACK_MS = DOWN_MS + DISK_SLOW_MS + OUTPUT_TERMINAL_MS + OUTPUT_STALL_MS + DISK_WAIT_MS +
                     LAST_WORD_MS + GUARD_RESERVE_MS,
};

/* The longest wait for a node that is silent, with the time until the next look at it. */
#define LEASE_END_MS(lease_ms) ((lease_ms)*11 / 10)

/*
 * How long the ranks of a node may run without an answer of the coordinator. A session bears a silence that
 * is shorter than the lease, and the last answer may be a beat old when the silence begins. So it is a sixth
 * longer: no rank is killed for a silence that its session bears.
 */
#define LEASE_RANKS_MS(lease_ms) ((lease_ms)*7 / 6)
/* The lease of which LEASE_RANKS_MS() is this. */
#define LEASE_OF_RANKS_MS(ranks_ms) (((ranks_ms)*6 + 6) / 7)

/*
 * How long after its last answer to a node the coordinator waits until no rank of that node can run. A tenth
 * is for clocks that run at different rates.
 */
#define LEASE_FENCE_MS(lease_ms) (LEASE_END_MS(LEASE_RANKS_MS(lease_ms)) + LEASE_KILL_MS)

/*
 * A job that has lost a node, and has no restart left, ends on every node within 10 s (docs/operations.md).
 */
_Static_assert(LEASE_END_MS(LEASE_MS) + LOST_GRACE_MS <= 10000 - 1000,
               "KILL and the report have the last second");

#endif
