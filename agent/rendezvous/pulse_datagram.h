/*
 * Pulses: beats that travel beside the session of a member and its coordinator, as datagrams (UDP, the port
 * of the session's listener). They leave from a thread that does nothing else (pulse_sender.h), and such a
 * thread answers them (pulse_listener.h). So neither a busy loop nor a retransmission of TCP delays them. If
 * a network drops datagrams, only the beats of the session remain.
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

enum {
    PULSE_BYTES = 64,
    /* in leases: an agent whose loop has not turned for so long sends no question and no answer */
    PULSE_LEASES = 10
};

struct pulse {
    bool is_answer;
    unsigned char session[SESSION_IDENTITY_BYTES];
    int64_t sent_ns, answered_ns, lease_ms; /* as in struct proto_beat */
};

/** Derive the key of the MACs of a job: TLS_KEY_BYTES, from the job's key. They may be the same memory. */
enum fsdp_status pulse_derive_key(unsigned char *out, const unsigned char *key, struct fsdp_err *err);

/**
 * Write a pulse into `out`. `key` is that of pulse_derive_key(); NULL: no MAC is written. Returns false if
 * OpenSSL refuses.
 */
bool pulse_encode(unsigned char out[PULSE_BYTES], const struct pulse *pulse, const unsigned char *key);
/** Read a datagram, which may have any content. Returns false if it is not a pulse made with this key. */
bool pulse_decode(struct pulse *out, const void *bytes, size_t n_bytes, const unsigned char *key);

#endif
