/*
 * What a leader knows of its members by their pulses (pulse_datagram.h), and which pulses it answers. The
 * thread that answers them (pulse_listener.h) and the loop share one book, under the listener's lock.
 *   - A question counts once. If it was sent before one that has come already, it is late, or a stranger
 *     repeats it, and it is dropped.
 *   - An answer extends the lease of the member's ranks. The book keeps when the last one was given, so that
 *     the loop fences a node that is lost from then on.
 *   - A question tells which answer the member has got. So the book knows since when no member can have stood
 *     for the lead, while the loop does not turn.
 *   - If the loop has not turned for PULSE_LEASES leases, no question is answered any more.
 *
 * Pure: no sockets, no threads, no clock. Times are nanoseconds of CLOCK_BOOTTIME.
 */
#ifndef AGENT_PULSE_BOOK_H
#define AGENT_PULSE_BOOK_H

#include "agent/rendezvous/pulse_datagram.h"
#include "shard_runtime/core/table.h"

/*
 * What is known of a member: what it has sent, and which answers it got. A time of 0 means that there was
 * none.
 */
struct pulse_told {
    int64_t came_ns;     /* its last question that counts */
    int64_t answered_ns; /* the last answer that it got */
    int64_t heard_ns;    /* when the newest answer that has reached the member was sent */
};

/* A member that has a session. Its owner keeps this struct. */
struct pulse_member {
    struct table_entry at;
    unsigned char session[SESSION_IDENTITY_BYTES];
    bool is_in;
    int64_t asked_ns; /* when the member sent its last question that counts, by the member's clock */
    struct pulse_told told;
};

struct pulse_book {
    struct table members;
    int64_t lease_ms;
    int64_t turned_ns; /* when the loop has turned last */
    int64_t away_ns;   /* as in pulse_book_turned() */
    bool misses;       /* some member that has a session is missing in the book */
};

void pulse_book_init(struct pulse_book *book, int64_t lease_ms, int64_t now_ns);
void pulse_book_free(struct pulse_book *book);

/** The member's session has begun. Nothing is known of its pulses yet. */
void pulse_book_add(struct pulse_book *book, struct pulse_member *member,
                    const unsigned char session[SESSION_IDENTITY_BYTES]);
/** The member's session has ended: its questions no longer count. `told` stays as it is. */
void pulse_book_remove(struct pulse_book *book, struct pulse_member *member);
/** A member has reported over its session which answer has reached it: one that was sent at `heard_ns`. */
void pulse_book_heard(struct pulse_member *member, int64_t heard_ns);
/**
 * The loop has turned.
 *   away_ns  what pulse_told.heard_ns was, at the least, of agents that were let in, are not there now, and
 *            may live; INT64_MAX: there are none
 */
void pulse_book_turned(struct pulse_book *book, int64_t away_ns, int64_t now_ns);
/** Has the loop turned lately? */
bool pulse_book_turns(const struct pulse_book *book, int64_t now_ns);

/**
 * Takes a question that has arrived. Returns whether it is to be answered; `answer` then receives the times
 * to send.
 *   holds  this leader may answer
 */
bool pulse_book_take(struct pulse_book *book, const struct pulse *question, bool holds, int64_t now_ns,
                     struct pulse *answer);
/**
 * Returns the time until which no agent may stand for the lead: every agent that was let in, and may still
 * live, has heard from this leader at most a lease before that time (arbiter_in_contact_until()). 0: that is
 * not known.
 */
int64_t pulse_book_contact_until_ns(const struct pulse_book *book, int64_t now_ns);

#endif
