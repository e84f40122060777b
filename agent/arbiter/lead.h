/*
 * Who leads a run, as one agent sees it. The store of an arbiter (arbiter_store.h) gives each term to one
 * agent; this machine decides when to ask for one, and when to stop leading. At most one agent holds at any
 * time, whatever the store's answers take:
 *
 *   1. A leader writes the record every third of the lease. It holds until one lease after the START of the
 *      last write that succeeded before its hold was over. Then it is deposed; a late answer revives nothing.
 *   2. The others read the record every tenth of the lease, or once in a lease (lead_sit()). It is stale when
 *      a read that began 1.1 leases after this agent had last seen it change finds it unchanged. Time in
 *      which this agent itself stood still counts as a sixth of the lease at most.
 *   3. An agent claims the term after the newest one it knows if the record is stale, and if it may: it
 *      stands, and that read also began 1.1 leases after it had last heard from a leader; or it hosts by the
 *      endpoint, which may claim at once if there is no record or an ended one. The agent of seat 0 claims
 *      first, each higher seat a twentieth of a lease later. Members end their ranks before they stand, so
 *      one claims 2.8 leases after the last change of the record at the latest. The host by the endpoint,
 *      which begins a new run, leaves them four leases: its agent may be one that was started again at once.
 *   4. Who finds a term taken has seen a record change, which becomes stale as any other.
 *   5. An agent that cannot lead, although it stood, writes that into the record (lead_leave()). It held
 *      until then, and no generation of its term began. So those who stand may claim the next one at once.
 *   6. If the agent of a leader is killed, its guard may write that into the record (leader_swept.h). No
 *      process writes or answers in that term any more. So those who stand may claim the next one at once.
 *
 * So whoever begins a term without such a word saw the record last change after the old leader began its last
 * write, and waited longer than that leader held. The new leader also fences: no generation begins before
 * the ranks of the old one cannot run any more.
 *
 * While the store does not answer its leader, the leader may go on as long as it is in contact with every
 * agent that it let in (lead_in_contact_until()): none of them claims sooner than 1.1 leases after it last
 * heard from the leader. It goes on until ten leases after the start of its last write that succeeded. An
 * agent that this leader did not let in, in this term, waits for so long: it takes the record for stale after
 * 11.1 leases, unless it knows that the leader's process is gone (lead_old_is_gone()), and the record does
 * not say that this cannot be known (`unlocked`); the host by the endpoint waits for four leases then. All
 * this holds if the record says so (`goes_on`), which the leader of a new run writes at once. One that took
 * over waits with it (lead_go_on()): those whom the leader before had let in are on their way to it, and
 * would wait so long if it were lost before they come.
 *
 * The caller has a loop, and may drive this machine from another thread while the loop is busy. It says when
 * the loop has turned (lead_turned()). An agent whose loop has not turned for a sixth of a lease claims
 * nothing. A leader's may be busy for LEAD_CONTACT leases: then it writes no more, so another can lead. If it
 * has not been told that it leads until then, it is as if it had never led.
 *
 * Pure: no files, no clock, no threads. Times are milliseconds of CLOCK_BOOTTIME; they never go back.
 */
#ifndef AGENT_LEAD_H
#define AGENT_LEAD_H

#include "agent/arbiter/arbiter_store.h"

enum {
    LEAD_READS = 10,    /* reads of the record in a lease */
    LEAD_RENEWS = 3,    /* writes of the leader in a lease */
    LEAD_STALL = 6,     /* a lease / 6 is the longest time between two looks that counts in full */
    LEAD_SEATS = 20,    /* a lease / 20 is the delay from one seat to the next */
    LEAD_CONTACT = 10,  /* leases that a leader in contact goes on */
    LEAD_MEMBERS = 4,   /* leases in which members may take over, before the host by the endpoint claims */
    LEAD_LAST_SEAT = 10 /* this seat, those above it and spares claim at the same time */
};

enum lead_role {
    LEAD_WATCHES = 1,
    LEAD_LEADS,
    LEAD_RESIGNS, /* leads no more, and writes into the record that the run is over, or that it has left */
    LEAD_OVER     /* the run is over, by this agent's word or another's; or this agent has left */
};

/* What has happened; lead_news() tells each once. If several wait, this is their order. */
enum lead_news {
    LEAD_NO_NEWS,
    LEAD_BEGAN,   /* this agent leads: `term`, `before` and `fence_until_ms` say how */
    LEAD_DEPOSED, /* this agent leads no more */
    /* another agent leads: its record was seen to change. Told for each term once, and after lead_first() */
    LEAD_FOLLOW,
    /*
     * the record says that the run is over, which this agent saw led, and took part in or was about to; or
     * lead_leave() is done
     */
    LEAD_ENDED
};

/* The call of the store to make now. */
enum lead_call { LEAD_NO_CALL, LEAD_READ, LEAD_CLAIM, LEAD_RENEW };

struct lead {
    struct leader_record self; /* what this agent claims and writes; `term`: the one it claimed last */
    enum lead_role role;
    bool rests;         /* reads once in a lease until it stands */
    bool first, stands; /* wants to lead: as the host by the endpoint; as a member without a leader */
    int seat;
    int64_t heard_ms; /* last word of a leader; of one that led: a lease before its hold was over */
    uint64_t let_in;  /* the term of the last leader that let this agent in; 0: none did */
    int64_t stood_ms; /* when it stood up */
    int64_t gone_ms;  /* no process of an old leader has run since; 0: that is not known */

    struct leader_record known; /* the newest record that was seen; term 0: none */
    bool first_saw_a_leader;    /* one that led this run was in the store while `first` */
    bool saw_a_leader;          /* a record or a claim of one that led this run was seen */
    bool has_read;              /* the store has said whether there is one */
    int64_t read_ms;            /* when the last read that was answered began */
    int64_t term_ms;            /* when the term of `known` was seen first */
    int64_t seen_ms;            /* when `known` was seen first */
    int64_t quiet_ms;           /* the same, moved on by the time in which this agent stood still */
    int64_t ripe_ms;            /* since when this agent may claim; 0: it may not */
    int64_t longest_ms;         /* the longest lease of all leaders that were seen */
    int64_t fence_ms;           /* until when ranks of those before `known` may run; 0: none can */
    uint64_t told_term;         /* the highest of which LEAD_FOLLOW told, or that it led */

    int64_t claim_ms;     /* when the first claim of `self.term` began */
    int64_t hold_ms;      /* until when the store lets this agent lead */
    int64_t contact_ms;   /* until when no agent stands */
    bool dirty;           /* `self` is to be written at once */
    int64_t published_ms; /* when the progress in `self` was published, by this agent's clock */

    enum lead_call call;        /* under way */
    bool is_early;              /* it began before this agent sat down */
    struct leader_record asked; /* what it writes */
    int64_t began_ms;           /* when it began */
    int64_t next_ms;            /* when the next one is due */
    int64_t failed_until_ms;    /* a call has failed: no claim before */
    int64_t looked_ms;          /* last look */
    int64_t turned_ms;          /* the caller's loop has turned last */

    bool began, deposed, follow, ended; /* news that were not told */
    bool was_first, stood;              /* while `began`: what it wanted until then */
    struct leader_record followed;      /* of LEAD_FOLLOW: the record that was seen to change */
    struct leader_record before;        /* of LEAD_BEGAN: the record that was stale or ended; term 0: none */
    int64_t fence_until_ms;             /* of LEAD_BEGAN: no generation may begin before; 0: none is fenced */
};

/**
 * Begin as a watcher.
 *   self  this agent: run, identity, lease_ms. The rest is zero
 */
void lead_init(struct lead *lead, const struct leader_record *self, int64_t now_ms);

/* What the caller wants. Members reach this agent at `host` and `port`. */

/**
 * This agent hosts by the endpoint: lead, unless another does. It waits for that if the record does not say:
 * for another agent's record to change (LEAD_FOLLOW; it does not host then), or to become stale.
 */
void lead_first(struct lead *lead, const char *host, int port);
/**
 * This agent has no leader, and no rank of it runs or can run: lead, as soon as no other agent does.
 *   seat      the seat it had; -1: none
 *   heard_ms  when a word of the leader last arrived; 0: none did
 *   let_in    the term of that leader; 0: none let this agent in
 */
void lead_stand(struct lead *lead, int seat, const char *host, int port, int64_t heard_ms, uint64_t let_in,
                int64_t now_ms);
/**
 * No other agent's process that led runs any more: this one has a lock, for instance, that a leader keeps
 * until its process is gone. Valid until lead_withdraw(), or until another leads.
 */
void lead_old_is_gone(struct lead *lead, int64_t now_ms);
/**
 * This agent is a member in that seat; -1: a spare. Members above LEAD_LAST_SEAT would claim last, so they
 * read the record once in a lease until they stand: a store of many agents is read by few. A read that is
 * under way may bring nothing of their leader yet, so it is not that one.
 */
void lead_sit(struct lead *lead, int seat);
/**
 * Claim no more. A claim that is under way, or of which lead_news() has not told yet, comes to nothing.
 */
void lead_withdraw(struct lead *lead);
/** Write this into the record, at once. No effect unless this agent leads. */
void lead_publish(struct lead *lead, const struct leader_progress *progress, int64_t now_ms);
/** The same for the address of this agent. */
void lead_move(struct lead *lead, const char *host, int port);
/**
 * Write into the record that this leader may go on without the store. Those whom the leader before had let in
 * have come, or are not waited for any more. No effect unless this agent leads.
 *   unlocked  another agent may call lead_old_is_gone() while this one lives: it has no lock, for instance
 */
void lead_go_on(struct lead *lead, bool unlocked);
/**
 * Before this time no agent that was let in stands, because each has heard from this leader so late. No
 * effect unless this agent leads, and has written a record which says that it may go on; 0 takes it back.
 */
void lead_in_contact_until(struct lead *lead, int64_t until_ms);
/** The run is over: lead no more from now on, and write that. LEAD_ENDED or LEAD_DEPOSED follows. */
void lead_resign(struct lead *lead, int exit_status);
/**
 * This agent has taken over, and cannot lead: leave it to those who stand, and write that. No generation of
 * its term has begun. LEAD_ENDED or LEAD_DEPOSED follows.
 */
void lead_leave(struct lead *lead);

/* What the caller does */

/**
 * Time has passed. Call it every tenth of a lease at least, and whenever a time of lead_due_ms() has come.
 */
void lead_look(struct lead *lead, int64_t now_ms);
/** The caller's loop has turned. */
void lead_turned(struct lead *lead, int64_t now_ms);
/** Take the next news. */
enum lead_news lead_news(struct lead *lead);
/** Is there any? */
bool lead_has_news(const struct lead *lead);
/**
 * The call to begin now. LEAD_NO_CALL: none is due, or one is under way. Else `record` receives what to claim
 * or write, and lead_answered() must follow.
 */
enum lead_call lead_next(struct lead *lead, struct leader_record *record, int64_t now_ms);
/**
 * The answer to that call. `record`: what a read, ARBITER_TAKEN or ARBITER_DEPOSED brought. It may have come
 * late: what it means depends on when the call began.
 */
void lead_answered(struct lead *lead, enum arbiter_answer answer, const struct leader_record *record,
                   int64_t now_ms);
/** When to look next, at the latest. */
int64_t lead_due_ms(const struct lead *lead);

/**
 * How long the record that is known must stay as it is before this agent may claim. It is more than 1.1
 * leases in two cases: the leader of the record may go on without the store, and has not let this agent in;
 * or this agent hosts by the endpoint, and the members of the record's leader may take over before it.
 */
int64_t lead_patience_ms(const struct lead *lead);
/** Until when this agent leads: it acts as a leader only before that time. 0: it does not lead. */
int64_t lead_holds_until_ms(const struct lead *lead);

#endif
