/*
 * Pulses: beats that a member and its coordinator exchange in addition to their session, as datagrams (UDP,
 * the port of the session's listener). They leave from a thread that does nothing else (pulse_sender.h), and
 * such a thread answers them (pulse_listener.h). So neither a busy loop nor a retransmission of TCP delays
 * them. If a network drops datagrams, only the beats of the session remain.
 *   - A question and its answer say what a PROTO_BEAT says (agent/members/proto.h), and mean the same.
 *   - Both name the session. So they count only while it lasts, at both ends.
 *   - With a key, each ends with a MAC. A question that is sent again by a stranger has a time that is not
 *     later than the last one, and is dropped (pulse_book.h). An answer that is sent again changes nothing.
 *
 * Pure but for the MAC: no sockets, no clock.
 */
#ifndef AGENT_PULSE_DATAGRAM_H
#define AGENT_PULSE_DATAGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/wire/session_hello.h"
#include "agent/wire/tls.h"

enum {
    PULSE_BYTES = 64,
    /* an agent sends no question and no answer if its loop has not turned for so many leases */
    PULSE_LEASES = 10
};

struct pulse {
    bool is_answer;
    unsigned char session[SESSION_IDENTITY_BYTES];
    int64_t sent_ns, answered_ns, lease_ms; /* as in struct proto_beat */
};

/**
 * The key of the MACs of a job, from the job's key (TLS_KEY_BYTES). One thread at a time may use it; it is
 * released by tls_mac_key_destroy(). NULL: that is not possible.
 */
struct tls_mac_key *pulse_key_create(const unsigned char *job_key);

/** Write a pulse into `out`. `key`: NULL is for clear text. Returns false if OpenSSL refuses. */
bool pulse_encode(unsigned char out[PULSE_BYTES], const struct pulse *pulse, struct tls_mac_key *key);
/** Read what has arrived, which may be anything. Returns false if it is no pulse with this key. */
bool pulse_decode(struct pulse *out, const void *bytes, size_t n_bytes, struct tls_mac_key *key);

#endif
