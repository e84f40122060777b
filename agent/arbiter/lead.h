/*
 * Who leads a run, as one agent sees it. The store of an arbiter (arbiter_store.h) gives each term to one
 * agent; this machine decides when to ask for one, and when to stop leading. At most one agent holds at any
 * time, whatever the store's answers take:
 *
 *   1. A leader writes the record every third of the lease. It holds until one lease after the START of the
 *      last write that succeeded before its hold was over. Then it is deposed; a late answer revives nothing.
 *   2. The others read the record every tenth of the lease, or once in a lease (lead_sit()). It is stale when
 *      a read that began 1.1 leases after this agent had last seen it change finds it unchanged. Time in
 *      which this agent itself did not run counts as a sixth of the lease at most.
 *   3. An agent claims the term after the newest one it knows if the record is stale, and if it may: it
 *      stands, and that read also began 1.1 leases after it had last heard from a leader; or it hosts by the
 *      endpoint, which may claim at once if there is no record or an ended one. The agent of seat 0 claims
 *      first, each higher seat a twentieth of a lease later. Members end their ranks before they stand, so
 *      one claims 2.8 leases after the last change of the record at the latest. The host by the endpoint,
 *      which begins a new run, leaves them four leases: its agent may be one that was started again at once.
 *   4. An agent that finds a term taken has seen the record change. That record becomes stale as any other
 *      does.
 *   5. An agent that cannot lead, although it stood, writes that into the record (lead_leave()). It held
 *      until then, and no generation of its term began. So those who stand may claim the next one at once.
 *   6. If the agent of a leader is killed, its guard may write that into the record (leader_swept.h). No
 *      process writes or answers in that term any more. So those who stand may claim the next one at once.
 *
 * An agent may begin a term without such a word. Then it saw the record last change after the old leader
 * began its last write, and waited longer than that leader held. The new leader also fences: no generation
 * begins before the ranks of the old one cannot run any more.
 *
 * If the store does not answer, the leader may go on while it is in contact with every agent that it let in
 * (lead_in_contact_until()). None of them claims sooner than 1.1 leases after it last heard from the leader.
 * It goes on until ten leases after the start of its last write that succeeded. An agent that this leader did
 * not let in, in this term, waits for so long: it treats the record as stale only after 11.1 leases.
 * Exception: it knows that the leader's process is gone (lead_old_is_gone()), and the record does not say
 * that this cannot be known (`unlocked`). The host by the endpoint waits for four leases then. All this holds
 * only if the record says so (`goes_on`). The leader of a new run writes that at once. One that took over
 * writes it later (lead_go_on()): agents of the leader before are still on their way to it. They would have
 * to wait so long if it were lost before they come.
 *
 * The caller has a loop, and may drive this machine from another thread while the loop is busy. It says when
 * the loop has turned (lead_turned()). An agent whose loop has not turned for a sixth of a lease claims
 * nothing. A leader's may be busy for LEAD_CONTACT leases: then it writes no more, so another can lead. If
 * the loop has not even been told yet that it leads, the agent gives the lead up as if it had never led.
 *
 * Pure: no files, no clock, no threads. Times are milliseconds of CLOCK_BOOTTIME; they never go back.
 */
#ifndef AGENT_LEAD_H
#define AGENT_LEAD_H

#include "agent/arbiter/arbiter_store.h"

enum {
    LEAD_READS = 10,    /* reads of the record in a lease */
    LEAD_RENEWS = 3,    /* writes of the leader in a lease */
    LEAD_STALL = 6,     /* a lease / 6: at most so much of the time between two looks counts */
    LEAD_SEATS = 20,    /* a lease / 20 is the delay from one seat to the next */
    LEAD_CONTACT = 10,  /* leases for which a leader in contact goes on without the store */
    LEAD_MEMBERS = 4,   /* leases in which members may take over, before the host by the endpoint claims */
    LEAD_LAST_SEAT = 10 /* seats from this one on, and spares, all claim at the same time */
};

enum lead_role {
    LEAD_WATCHES = 1,
    LEAD_LEADS,
    /*
     * This agent has stopped leading. It has yet to write into the record that the run is over, or that the
     * agent could not lead and has left.
     */
    LEAD_RESIGNS,
    LEAD_OVER /* the run is over, as this agent or another one has written; or this agent has left */
};

/* What has happened. lead_news() returns each item once. If several wait, they come in this order. */
enum lead_news {
    LEAD_NO_NEWS,
    LEAD_BEGAN,   /* this agent leads: `term`, `before` and `fence_until_ms` say how */
    LEAD_DEPOSED, /* this agent leads no more */
    /*
     * another agent leads: its record was seen to change. Reported once for each term, and again after
     * lead_first()
     */
    LEAD_FOLLOW,
    /*
     * The record says that the run is over, and this agent took part in it or was about to. Or the record
     * that lead_leave() asks for is written.
     */
    LEAD_ENDED
};

/* The call of the store to make now. */
enum lead_call { LEAD_NO_CALL, LEAD_READ, LEAD_CLAIM, LEAD_RENEW };

struct lead {
    /* what this agent claims and writes; `self.term` is the term that it claimed last */
    struct leader_record self;
    enum lead_role role;
    bool rests; /* this agent reads the record only once in a lease, as long as `stands` is not set */
    /* wants to lead: `first` as the host by the endpoint, `stands` as a member without a leader */
    bool first, stands;
    int seat;
    /* when a leader was last heard; if this agent led itself, a lease before its hold was over */
    int64_t heard_ms;
    uint64_t let_in;  /* the term of the last leader that let this agent in; 0: none did */
    int64_t stood_ms; /* when it stood up */
    int64_t gone_ms;  /* since when no process of an earlier leader runs; 0: that is not known */

    struct leader_record known; /* the newest record that was seen; term 0: none */
    bool first_saw_a_leader;    /* since lead_first(), the store had a record of an agent that led this run */
    bool saw_a_leader;          /* a record or a claim of an agent that led this run was seen */
    bool has_read;              /* the store has answered whether there is a record */
    int64_t read_ms;            /* when the last read that was answered began */
    int64_t term_ms;            /* when a record of the term of `known` was seen first */
    int64_t seen_ms;            /* when `known` was seen first */
    /* seen_ms, plus the time in which this agent did not run since then */
    int64_t quiet_ms;
    int64_t ripe_ms;    /* since when this agent may claim the next term; 0: it may not */
    int64_t longest_ms; /* the longest lease among all leaders that were seen */
    /* until when ranks of leaders before `known` may run; 0: no such rank can run */
    int64_t fence_ms;
    /* the highest term for which LEAD_FOLLOW was reported, or which this agent led */
    uint64_t told_term;

    int64_t claim_ms;     /* when this agent's first claim of `self.term` began */
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
    struct leader_record followed;      /* of LEAD_FOLLOW: the record that changed */
    /* for LEAD_BEGAN: the record of the leader before, stale or ended; term 0: none */
    struct leader_record before;
    /* for LEAD_BEGAN: no generation may begin before this time; 0: there is nothing to wait for */
    int64_t fence_until_ms;
};

/**
 * Begin as an agent that only watches who leads.
 *   self  this agent: run, identity, lease_ms. The rest is zero
 */
void lead_init(struct lead *lead, const struct leader_record *self, int64_t now_ms);

/* What the caller wants. `host` and `port` are where members reach this agent. */

/**
 * This agent hosts by the endpoint: it wants to lead, unless another agent does. If the record does not say
 * whether another leads, it waits: until the record changes (LEAD_FOLLOW; this agent does not host then), or
 * until the record is stale.
 */
void lead_first(struct lead *lead, const char *host, int port);
/**
 * This agent has no leader, and none of its ranks runs or can run. It wants to lead as soon as no other agent
 * does.
 *   seat      the seat it had; -1: none
 *   heard_ms  when a word of the leader last arrived; 0: none did
 *   let_in    the term of that leader; 0: none let this agent in
 */
void lead_stand(struct lead *lead, int seat, const char *host, int port, int64_t heard_ms, uint64_t let_in,
                int64_t now_ms);
/**
 * It is proven that no other process that led still runs, for instance by a lock that a leader keeps until
 * its process has ended. Valid until lead_withdraw(), or until another agent leads.
 */
void lead_old_is_gone(struct lead *lead, int64_t now_ms);
/**
 * This agent is a member in seat `seat`; -1: it is a spare. Members above LEAD_LAST_SEAT would claim last.
 * So, until they stand, they read the record only once in a lease, and a store of many agents is read by few.
 * If a read is in progress now, the next one is not put off: the answer may be too early to show their
 * leader's record. A spare that gets a lower seat reads again as soon as the others do.
 */
void lead_sit(struct lead *lead, int seat);
/**
 * This agent no longer wants to lead. A claim that is in progress, or that lead_news() has not reported yet,
 * has no effect.
 */
void lead_withdraw(struct lead *lead);
/** Write this progress into the record, at once. No effect unless this agent leads. */
void lead_publish(struct lead *lead, const struct leader_progress *progress, int64_t now_ms);
/** Write this address of the leader into the record, at once. No effect unless this agent leads. */
void lead_move(struct lead *lead, const char *host, int port);
/**
 * Write into the record that this leader may go on without the store. Call it when the agents of the leader
 * before have come, or are not waited for any more. No effect unless this agent leads.
 *   unlocked  another agent may call lead_old_is_gone() although this one lives, for instance because this
 *             one has no lock
 */
void lead_go_on(struct lead *lead, bool unlocked);
/**
 * No agent that was let in will stand before `until_ms`, because each has heard from this leader less than a
 * lease before. No effect unless this agent leads, and has written a record which says that it may go on. 0
 * takes it back.
 */
void lead_in_contact_until(struct lead *lead, int64_t until_ms);
/**
 * The run is over: this agent stops leading, and writes that the run has ended. LEAD_ENDED or LEAD_DEPOSED
 * follows.
 */
void lead_resign(struct lead *lead, int exit_status);
/**
 * This agent has taken over but cannot lead, and has begun no generation. It writes that, so that another may
 * claim. LEAD_ENDED or LEAD_DEPOSED follows.
 */
void lead_leave(struct lead *lead);

/* What the caller does */

/**
 * Takes note of the time. Call it at least every tenth of a lease, and whenever the time that lead_due_ms()
 * returns has come.
 */
void lead_look(struct lead *lead, int64_t now_ms);
/** The caller's loop has turned. */
void lead_turned(struct lead *lead, int64_t now_ms);
/** Take the next news. */
enum lead_news lead_news(struct lead *lead);
/** Is there any? */
bool lead_has_news(const struct lead *lead);
/**
 * Returns the call of the store to begin now. LEAD_NO_CALL: none is due, or one is in progress. For other
 * values `record` receives what to claim or write, and lead_answered() must follow.
 */
enum lead_call lead_next(struct lead *lead, struct leader_record *record, int64_t now_ms);
/**
 * Takes the answer to that call. `record` is what a read, ARBITER_TAKEN or ARBITER_DEPOSED returned. The
 * answer may come late: what it means depends on when the call began.
 */
void lead_answered(struct lead *lead, enum arbiter_answer answer, const struct leader_record *record,
                   int64_t now_ms);
/** When to look next, at the latest. */
int64_t lead_due_ms(const struct lead *lead);

/**
 * Returns for how long the known record must not change before this agent may claim. It is more than 1.1
 * leases in two cases. First, the record's leader may go on without the store, and has not let this agent in.
 * Second, this agent hosts by the endpoint, and leaves time for members of the record's leader to take over.
 */
int64_t lead_patience_ms(const struct lead *lead);
/**
 * Returns until when this agent leads. It must act as a leader only before that time. 0: it does not lead.
 */
int64_t lead_holds_until_ms(const struct lead *lead);

#endif
