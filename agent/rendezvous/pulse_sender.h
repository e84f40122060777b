/*
 * The member's end of the pulses (pulse_datagram.h): a thread that asks the coordinator for the lease, and
 * extends it with each answer. It does nothing else, so a loop that is busy, or waits for a disk, costs no
 * lease and no session.
 *
 * A loop that never turns again must not look alive: the thread asks only while the loop has turned within
 * PULSE_LEASES leases.
 *
 * Thread: all functions are called on the loop's.
 */
#ifndef AGENT_PULSE_SENDER_H
#define AGENT_PULSE_SENDER_H

#include <sys/socket.h>

#include "agent/os/lease.h"
#include "agent/rendezvous/pulse_datagram.h"

struct pulse_sender;

/* Whom to ask. */
struct pulse_aim {
    unsigned char session[SESSION_IDENTITY_BYTES];
    struct sockaddr_storage to; /* where the session reaches the coordinator */
    /* pace: between two questions; patience: how long the loop may not have turned before questions stop */
    int64_t pace_ms, patience_ms;
};

/* The newest answer of the current aim. All zero: there was none. */
struct pulse_news {
    int64_t came_ms;     /* by CLOCK_BOOTTIME */
    int64_t answered_ns; /* as in struct proto_beat */
};

/**
 * Start the thread, which asks nothing yet.
 *   lease  of this node; borrowed
 *   key    (TLS_KEY_BYTES) the job's; NULL: clear text. Not borrowed
 * Returns NULL if that is not possible; this node then sends no pulses.
 */
struct pulse_sender *pulse_sender_create(const struct lease *lease, const unsigned char *key);
/** Ends the thread. No lease is extended after this call. NULL is a no-op. */
void pulse_sender_destroy(struct pulse_sender *sender);

/**
 * Ask `aim` from now on; NULL: ask no one. When this returns, answers of an earlier session extend the lease
 * no more, and questions no longer report them. No effect if this is the aim already, or if `sender` is NULL.
 * Returns the news of the earlier aim.
 */
struct pulse_news pulse_sender_aim(struct pulse_sender *sender, const struct pulse_aim *aim);
/**
 * The loop has turned. `answered_ns` is the time of the newest answer that came over the session itself; the
 * next question reports it. Returns the news; all zero if `sender` is NULL.
 */
struct pulse_news pulse_sender_turn(struct pulse_sender *sender, int64_t answered_ns);

#endif
