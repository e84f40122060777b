/*
 * The conversation with one client of the store: it takes bytes, performs their requests on the keys, and
 * returns the bytes of the answers. Pure; agent/tcpstore/tcpstore_client.c moves the bytes.
 *
 *   - A session begins with VALIDATE and the right magic number. Anything else ends it.
 *   - Requests are performed in the order in which they came, also those that follow an unanswered WAIT.
 *   - While TCPSTORE_SESSION_HIGH bytes wait to be sent, no request is performed. So a client that does not
 *     read its answers costs at most that many bytes and one answer.
 */
#ifndef AGENT_TCPSTORE_SESSION_H
#define AGENT_TCPSTORE_SESSION_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/tcpstore/tcpstore_keys.h"
#include "agent/tcpstore/tcpstore_proto.h"

enum { TCPSTORE_SESSION_HIGH = 256 << 10, TCPSTORE_MAX_REPLY = 64 << 20 };

struct tcpstore_session {
    struct tcpstore_keys *keys;
    struct tcpstore_parser parser;
    struct tcpstore_waits waits;
    bool validated;
    bool changed;       /* a request has changed a key; the owner clears it */
    bool out_of_memory; /* an answer could not be kept; the next tcpstore_session_feed() fails */
    unsigned char *out; /* (out_n) bytes to be sent */
    size_t out_n, out_capacity;
};

/**
 * Initialise a session. The wake callback of `keys` must call tcpstore_session_woken() for `owner`. Allocates
 * nothing.
 */
void tcpstore_session_init(struct tcpstore_session *session, struct tcpstore_keys *keys, void *owner);
/** Free the session, and end its waits without an answer. */
void tcpstore_session_fini(struct tcpstore_session *session);

/**
 * Take bytes from *data (*n bytes), and advance both. Bytes are left only if the client must read answers
 * first.
 *   FSDP_ERR_FORMAT  no request of the protocol, or a limit exceeded
 *   FSDP_ERR_NOMEM   out of memory, or the store is full
 * After a failure the client can only be closed.
 */
enum fsdp_status tcpstore_session_feed(struct tcpstore_session *session, const unsigned char **data,
                                       size_t *n, struct fsdp_err *err);

/** Call it when the client's wait has ended: puts the answer into `out`. */
void tcpstore_session_woken(struct tcpstore_session *session);

/** The *n bytes to be sent; the caller frees them. NULL, with *n 0: there are none. */
unsigned char *tcpstore_session_take(struct tcpstore_session *session, size_t *n);

/** Bytes held for this client, without those of its waits (which tcpstore_keys counts). */
size_t tcpstore_session_held_bytes(const struct tcpstore_session *session);

#endif
