/*
 * The leader's end of the pulses (pulse_datagram.h): sockets, and a thread that does nothing else than answer
 * the questions which come there, as pulse_book.h says. A tenth of a lease at most passes between two calls
 * of struct pulse_lead.keep(). So a leader whose loop is busy, or waits for a disk, loses neither its members
 * nor the lease of its own node.
 *
 * Before the loop judges a session, it calls pulse_listener_turn(), which also reads the questions that the
 * thread has not read yet.
 *
 * Thread: the loop's, but for the callbacks.
 */
#ifndef AGENT_PULSE_LISTENER_H
#define AGENT_PULSE_LISTENER_H

#include <sys/socket.h>

#include "agent/rendezvous/pulse_book.h"

struct pulse_listener;

/*
 * How an arbiter decides whether pulses are answered. Both functions are called on the thread and on the
 * loop, but never at the same time.
 */
struct pulse_lead {
    bool (*holds)(void *arg); /* may a question be answered now? */
    /* Renews what the leader holds. `contact_until_ns` is the result of pulse_book_contact_until_ns(). */
    void (*keep)(void *arg, int64_t contact_until_ns);
    void *arg;
};

/**
 * Create a listener without a socket.
 *   key  (TLS_KEY_BYTES) the job's; NULL: clear text. Not borrowed
 * Returns NULL if that is not possible; members then do without pulses.
 */
struct pulse_listener *pulse_listener_create(int64_t lease_ms, const unsigned char *key);
/** Listen on one more address, with its port, ENDPOINT_MAX_ADDRESSES at most. False: not possible. */
bool pulse_listener_bind(struct pulse_listener *listener, const struct sockaddr *address);
/**
 * Start the thread. Call it once.
 *   lead  copied; NULL: no other agent can lead, so all questions of members are answered
 * Returns false if there is no thread: questions then wait until the loop turns.
 */
bool pulse_listener_serve(struct pulse_listener *listener, const struct pulse_lead *lead);
/** Ends the thread. NULL is a no-op, as for all functions below. */
void pulse_listener_destroy(struct pulse_listener *listener);

/**
 * Call pulse_book_add(), pulse_book_heard() and pulse_book_turned() for the listener's own book, under its
 * lock.
 */
void pulse_listener_admit(struct pulse_listener *listener, struct pulse_member *member,
                          const unsigned char session[SESSION_IDENTITY_BYTES]);
void pulse_listener_heard(struct pulse_listener *listener, struct pulse_member *member, int64_t heard_ns);
void pulse_listener_turn(struct pulse_listener *listener, int64_t away_ns);
/** What is known of a member now. */
struct pulse_told pulse_listener_told(struct pulse_listener *listener, struct pulse_member *member);
/**
 * Answers the member no more. Returns what is known of it, which is final because it gets no later answer.
 */
struct pulse_told pulse_listener_forget(struct pulse_listener *listener, struct pulse_member *member);

#endif
