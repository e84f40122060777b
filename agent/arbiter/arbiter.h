/*
 * The arbiter of a run, as an agent uses it: it says who leads (lead.h decides it). It has a thread of its
 * own, which reads the record, and renews it while this agent leads, whatever the loop does. Calls of the
 * store may block it: then the hold on the lead ends in time. The caller's disk is not used: a record that
 * waits behind logs would cost the lead.
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
     *   before          the record that it takes over from, which ended or became stale; NULL: there was
     *                   none. It may belong to an earlier run (`run`)
     *   fence_until_ms  no generation may begin before: ranks of the old leader may run until then; 0: none
     *                   can
     */
    void (*leads)(void *arg, uint64_t term, const struct leader_record *before, int64_t fence_until_ms);
    /*
     * Another agent leads, and is alive: its record has just changed. Called once for each term, with a
     * higher term each time, and once more after arbiter_claim_first(). An agent that waited to lead as the
     * first does not wait any more; one that stands still stands until arbiter_withdraw().
     */
    void (*follow)(void *arg, const struct leader_record *record);
    /*
     * The run is over: the record says so. After arbiter_resign() and arbiter_leave(): this agent's own
     * record. Comes last.
     */
    void (*ended)(void *arg, const struct leader_record *record);
    /* This agent led, and does no more. It ends what it leads at once, and may stand later. */
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
 * This agent hosts by the endpoint, and members reach it at `host` and `port`: lead at once if there is no
 * record or an ended one. Else wait: leads() if the record does not change, follow() if it does. The wait is
 * 11.1 leases if its leader may go on without the store, else four, in which the members of that leader may
 * take over. A note says so.
 */
void arbiter_claim_first(struct arbiter *arbiter, const char *host, int port);
/**
 * No other agent's process that led runs any more. The proof is, for instance, a lock that each first leader
 * takes before it claims, and keeps until its process is gone; a lock that a server takes away from a silent
 * host in less than ten leases is none. So arbiter_claim_first() waits for four leases at most, if this is
 * called before it, and the record does not say that its leader may have no such lock. Valid until
 * arbiter_withdraw(), leads() or follow().
 */
void arbiter_old_is_gone(struct arbiter *arbiter);
/**
 * This agent has lost its leader, and no rank of it runs or can run. It leads as soon as the record is stale,
 * and at the earliest 1.1 leases after `heard_ms`. Members will reach it at `host` and `port`. A second call
 * replaces the first.
 *   seat      the seat it had: lower ones claim earlier; -1: it had none
 *   heard_ms  when a word of its leader last arrived here (not when it was asked for); 0: none did
 *   let_in    the term of that leader, which let this agent in; 0: none did. It waits for 11.1 leases if the
 *             leader is another one by now, and may go on without the store
 */
void arbiter_stand(struct arbiter *arbiter, int seat, const char *host, int port, int64_t heard_ms,
                   uint64_t let_in);
/**
 * This agent is a member in that seat; -1: a spare. A member of a high seat reads the record once in a lease
 * until it stands: it would claim last. Without this call, it reads ten times.
 */
void arbiter_sit(struct arbiter *arbiter, int seat);
/** Claim no more, for example after WELCOME. leads() does not come any more. */
void arbiter_withdraw(struct arbiter *arbiter);

/* The leader's calls. They have no effect while this agent does not lead. */

/** Put this into the record, at once. */
void arbiter_publish(struct arbiter *arbiter, const struct leader_progress *progress);
/** Members reach this leader at another address than the one it claimed with. */
void arbiter_move(struct arbiter *arbiter, const char *host, int port);
/**
 * A leader that took over may go on without the store from now on, like the first one of a run. Agents that
 * it has not let in wait longer if it is lost.
 *   unlocked  this agent may live although another one has found the lock free (arbiter_old_is_gone())
 */
void arbiter_go_on(struct arbiter *arbiter, bool unlocked);
/**
 * No agent that this leader ever let in stands before `until_ms`. Agents that left in order, or swept their
 * node, do not count. Each other one is known to have heard from this leader one lease before that time, or
 * later (`heard_ms` of arbiter_stand()). So the leader holds until then, even if the store does not answer,
 * but not beyond ten leases after its last write. 0: no such time is known. No effect in a term that was
 * taken over before arbiter_go_on() is in the record.
 */
void arbiter_in_contact_until(struct arbiter *arbiter, int64_t until_ms);
/**
 * This agent has taken over, and cannot lead, so no generation has begun. It holds no more from now on, and
 * another may take the lead at once. ended() follows once the record says so, or deposed().
 */
void arbiter_leave(struct arbiter *arbiter);
/**
 * The run is over, and no rank of it runs. This agent holds no more from now on. ended() follows once the
 * record says so, or deposed().
 */
void arbiter_resign(struct arbiter *arbiter, int exit_status);

/**
 * Until when this agent may act as the leader: answer beats, form a generation, extend the lease of its own
 * ranks. 0: it does not lead. Ask at each such act, and compare with a fresh clock.
 */
int64_t arbiter_holds_until_ms(struct arbiter *arbiter);
/** The newest record that this agent has read or written; NULL: there is none. Valid until the next call. */
const struct leader_record *arbiter_record(struct arbiter *arbiter);
/** Did the store answer the last call in time? True as long as there was none. */
bool arbiter_answers(struct arbiter *arbiter);
/** Has this agent read a record of that identity: does it see the same store as that agent? */
bool arbiter_has_seen(struct arbiter *arbiter, const unsigned char identity[SESSION_IDENTITY_BYTES]);

/**
 * Begin no call of the store any more; no callback comes after this. Returns whether none is under way. NULL
 * has none.
 */
bool arbiter_rest(struct arbiter *arbiter);
/**
 * After arbiter_rest(): call `idle` once, from the loop, as soon as no call is under way. `idle` may call
 * arbiter_destroy().
 */
void arbiter_when_idle(struct arbiter *arbiter, void (*idle)(void *arg), void *arg);
/**
 * Stop, and free the arbiter and its store when the loop has run. Requires arbiter_rest(); an arbiter
 * whose store does not answer is left behind by a process that ends. Leading ends without a word: call
 * arbiter_resign() before, if the run is over. NULL is a no-op.
 */
void arbiter_destroy(struct arbiter *arbiter);

#endif
