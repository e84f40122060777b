/*
 * What a leader knows of its members by their pulses (pulse_datagram.h), and which pulses it answers. The
 * thread that answers them (pulse_listener.h) and the loop share one book, under the listener's lock.
 *   - A question counts once: one that was sent before another that has come is late, or a stranger sends it
 *     again.
 *   - An answer extends the lease of the member's ranks. The book keeps when the last one was given, so that
 *     the loop fences a node that is lost from then on.
 *   - A question tells which answer the member has got. So the book knows since when no member can have stood
 *     for the lead, while the loop does not turn.
 *   - A loop that has not turned for PULSE_LEASES is not spoken for.
 *
 * Pure: no sockets, no threads, no clock. Times are nanoseconds of CLOCK_BOOTTIME.
 */
#ifndef AGENT_PULSE_BOOK_H
#define AGENT_PULSE_BOOK_H

#include "agent/rendezvous/pulse_datagram.h"
#include "shard_runtime/core/table.h"

/* What came from a member, and what it got. Times that are 0: there was none. */
struct pulse_told {
    int64_t came_ns;     /* its last question that counts */
    int64_t answered_ns; /* the last answer that it got */
    int64_t heard_ns;    /* when the newest answer that it has received was sent */
};

/* A member whose session is there. Its owner keeps it. */
struct pulse_member {
    struct table_entry at;
    unsigned char session[SESSION_IDENTITY_BYTES];
    bool is_in;
    int64_t asked_ns; /* its last question that counts, by its own clock */
    struct pulse_told told;
};

struct pulse_book {
    struct table members;
    int64_t lease_ms;
    int64_t turned_ns; /* when the loop has turned last */
    int64_t away_ns;   /* as in pulse_book_turned() */
    bool misses;       /* a member that is there is not in it */
};

void pulse_book_init(struct pulse_book *book, int64_t lease_ms, int64_t now_ns);
void pulse_book_free(struct pulse_book *book);

/** The member's session is there. Nothing is known of its pulses. */
void pulse_book_add(struct pulse_book *book, struct pulse_member *member,
                    const unsigned char session[SESSION_IDENTITY_BYTES]);
/** The session is gone: its questions count no more, and `told` stays as it is. */
void pulse_book_remove(struct pulse_book *book, struct pulse_member *member);
/** A member has said over its session which answer it has received. */
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
 * A question has come. If it is answered, `answer` receives the times.
 *   holds  this leader may answer
 */
bool pulse_book_take(struct pulse_book *book, const struct pulse *question, bool holds, int64_t now_ns,
                     struct pulse *answer);
/**
 * Every agent that was let in, and may live, has heard from this leader a lease before that time, or later
 * (arbiter_in_contact_until()). 0: that is not known.
 */
int64_t pulse_book_contact_until_ns(const struct pulse_book *book, int64_t now_ns);

#endif
