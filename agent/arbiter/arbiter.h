/*
 * The arbiter of a run, as an agent uses it: it says who leads (lead.h decides it). It has a thread of its
 * own, which reads the record, and renews it while this agent leads, whatever the loop does. Calls of the
 * store may block it: then the hold on the lead ends in time. It does not use the caller's disk thread:
 * there, a record could wait until logs are written, and the lead could be lost.
 *
 *   watching        arbiter_create(): it reads who leads, and tells follow() and ended()
 *   leading         after arbiter_claim_first() or arbiter_stand(): leads(), and later deposed(), or ended()
 *                   after arbiter_resign()
 *
 * Callbacks run on the loop's thread, never from within a function of this header. From within any of them
 * every function here may be called. arbiter_in_contact_until() and arbiter_holds_until_ms() may be called on
 * any thread. All times are milliseconds of CLOCK_BOOTTIME, as clock_boot_ns() has it.
 */
#ifndef AGENT_ARBITER_H
#define AGENT_ARBITER_H

#include <uv.h>

#include "agent/arbiter/arbiter_store.h"

struct arbiter;

struct arbiter_spec {
    struct arbiter_store *store; /* the arbiter owns it from arbiter_create() on, also if that fails */
    uint64_t run;                /* identity_job() */
    unsigned char identity[SESSION_IDENTITY_BYTES]; /* this agent's, as in its JOIN and WELCOME */
    int64_t lease_ms;
};

struct arbiter_handlers {
    /*
     * This agent leads from now on.
     *   before          the record of the leader before, which ended or became stale; NULL: there was none.
     *                   It may belong to an earlier run (`run`)
     *   fence_until_ms  no generation may begin before: ranks of the old leader may run until then; 0: none
     *                   can
     */
    void (*leads)(void *arg, uint64_t term, const struct leader_record *before, int64_t fence_until_ms);
    /*
     * Another agent leads, and is alive: its record has just changed. Called once for each term, with a
     * higher term each time, and once more after arbiter_claim_first(). After that, an agent that waited
     * since arbiter_claim_first() no longer wants to lead. One that has called arbiter_stand() still does,
     * until arbiter_withdraw().
     */
    void (*follow)(void *arg, const struct leader_record *record);
    /*
     * The run is over: the record says so. Also called once this agent's own record is written after
     * arbiter_resign() or arbiter_leave(). No other handler is called after it.
     */
    void (*ended)(void *arg, const struct leader_record *record);
    /*
     * This agent led, and leads no more, for the reason in `words`. It must end its generation at once. It
     * may stand again later.
     */
    void (*deposed)(void *arg, const char *words);
    /* A line for the log: the store fails, or answers again. */
    void (*note)(void *arg, const char *words);
};

/**
 * Begin to watch. The first read begins when the loop runs. After a failure *out is NULL.
 *   FSDP_ERR_NOMEM  no memory, or no thread
 */
enum fsdp_status arbiter_create(struct arbiter **out, uv_loop_t *loop, const struct arbiter_spec *spec,
                                const struct arbiter_handlers *handlers, void *arg, struct fsdp_err *err);

/**
 * This agent hosts by the endpoint, and members reach it at `host` and `port`. It leads at once if there is
 * no record, or one that has ended. Otherwise it waits until the record has not changed for long enough, and
 * leads(), or until it changes, and follow(). The wait is 11.1 leases if the record's leader may go on
 * without the store. Otherwise it is four leases, in which that leader's members may take over. A note says
 * so.
 */
void arbiter_claim_first(struct arbiter *arbiter, const char *host, int port);
/**
 * Call it if it is proven that no other process that led still runs. A proof is a lock that each first leader
 * takes before it claims, and keeps until its process has ended. It is no proof if a lock server takes the
 * lock from a silent host in less than ten leases. If this was called before, arbiter_claim_first() waits
 * four leases at most, unless the record says that its leader may have no such lock. Valid until
 * arbiter_withdraw(), leads() or follow().
 */
void arbiter_old_is_gone(struct arbiter *arbiter);
/**
 * This agent has lost its leader, and no rank of it runs or can run. It leads as soon as the record is stale,
 * and at the earliest 1.1 leases after `heard_ms`. Members will reach it at `host` and `port`. A second call
 * replaces the first.
 *   seat      the seat it had: lower ones claim earlier; -1: it had none
 *   heard_ms  when a word of its leader last arrived here (not when it was asked for); 0: none did
 *   let_in    the term of the leader that let this agent in; 0: none did. If another one leads by now, and
 *             may go on without the store, this agent waits for 11.1 leases
 */
void arbiter_stand(struct arbiter *arbiter, int seat, const char *host, int port, int64_t heard_ms,
                   uint64_t let_in);
/**
 * This agent is a member in seat `seat`; -1: it is a spare. Members of high seats claim last. So they read
 * the record only once in a lease until they stand, and other members read it ten times in a lease.
 */
void arbiter_sit(struct arbiter *arbiter, int seat);
/** This agent no longer wants to lead, for example after WELCOME. leads() is not called any more. */
void arbiter_withdraw(struct arbiter *arbiter);

/* Calls of a leader. They have no effect while this agent does not lead. */

/** Writes the progress into the record, at once. */
void arbiter_publish(struct arbiter *arbiter, const struct leader_progress *progress);
/** Members reach this leader at `host` and `port` from now on, not at the address that it claimed with. */
void arbiter_move(struct arbiter *arbiter, const char *host, int port);
/**
 * Call it as a leader that took over: from now on it may go on without the store, as the first leader of a
 * run may. The price: if it is lost, agents that it has not let in wait longer.
 *   unlocked  this agent may live although another one has found the lock free (arbiter_old_is_gone())
 */
void arbiter_go_on(struct arbiter *arbiter, bool unlocked);
/**
 * Tells the arbiter that no agent which this leader has let in will stand before `until_ms`. Each of them has
 * heard from this leader at most one lease before that time. Agents that left in order, or swept their node,
 * do not count. So the leader holds the lead until then even if the store does not answer, but at most ten
 * leases after its last write. 0: no such time is known. After a take-over it has no effect until the record
 * has what arbiter_go_on() writes.
 */
void arbiter_in_contact_until(struct arbiter *arbiter, int64_t until_ms);
/**
 * Call it if this agent took over but cannot lead, and has begun no generation. It gives up the lead, and
 * another agent may claim at once. ended() follows once the record says so, or deposed().
 */
void arbiter_leave(struct arbiter *arbiter);
/**
 * Call it when the run is over and none of its ranks runs. This agent gives up the lead. ended() follows once
 * the record says so, or deposed().
 */
void arbiter_resign(struct arbiter *arbiter, int exit_status);

/**
 * Returns until when this agent may act as the leader: answer beats, form a generation, extend the lease of
 * its own ranks. 0: it does not lead. Before each such act, compare it with a fresh clock.
 */
int64_t arbiter_holds_until_ms(struct arbiter *arbiter);
/** The newest record that this agent has read or written; NULL: there is none. Valid until the next call. */
const struct leader_record *arbiter_record(struct arbiter *arbiter);
/** Did the store answer the last call in time? True as long as no call was made. */
bool arbiter_answers(struct arbiter *arbiter);
/** Has this agent read a record of the agent `identity`? If so, both use the same store. */
bool arbiter_has_seen(struct arbiter *arbiter, const unsigned char identity[SESSION_IDENTITY_BYTES]);

/**
 * Begins no call of the store any more; no handler is called after this. Returns true if no call is in
 * progress, also if `arbiter` is NULL.
 */
bool arbiter_rest(struct arbiter *arbiter);
/**
 * After arbiter_rest(): `idle` is called once, on the loop, as soon as no call of the store is in progress.
 * It may call arbiter_destroy().
 */
void arbiter_when_idle(struct arbiter *arbiter, void (*idle)(void *arg), void *arg);
/**
 * Stops, and frees the arbiter and its store when the loop has run. Call it only if arbiter_rest() has
 * returned true. An arbiter whose store does not answer is left to the end of the process. This writes
 * nothing into the record: call arbiter_resign() before it, if the run is over. NULL is a no-op.
 */
void arbiter_destroy(struct arbiter *arbiter);

#endif
