/*
 * One client of the store: bytes in, what they ask for done to the keys, bytes out. Pure; agent/tcpstore/tcpstore.c moves the
 * bytes.
 *
 * A session begins with VALIDATE and the right magic; anything else ends it. Requests are done in the order in which
 * they came, also those behind a WAIT that is not answered yet. While TCPSTORE_SESSION_HIGH bytes are waiting to be
 * sent, nothing further is taken: a client that asks and does not read stops being heard, and holds no more than that
 * and one answer.
 */
#ifndef AGENT_TCPSTORE_SESSION_H
#define AGENT_TCPSTORE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/tcpstore/tcpstore_keys.h"
#include "agent/tcpstore/tcpstore_proto.h"

enum { TCPSTORE_SESSION_HIGH = 256 << 10, TCPSTORE_MAX_REPLY = 64 << 20 };

struct tcpstore_session {
    struct tcpstore_keys *keys;
    struct tcpstore_parser parser;
    struct tcpstore_waits waits;
    bool validated;
    bool out_of_memory; /* an answer could not be kept: the next feed fails */
    unsigned char *out; /* (out_n) bytes to be sent */
    size_t out_n, out_capacity;
};

/** The keys' wake callback must come to tcpstore_session_woken() with `owner`. Nothing is allocated. */
void tcpstore_session_init(struct tcpstore_session *session, struct tcpstore_keys *keys, void *owner);
/** What it waits for is forgotten. */
void tcpstore_session_fini(struct tcpstore_session *session);

/**
 * Take bytes from *data, of which there are *n: all of them, unless the client has to read first.
 *   FSDP_ERR_FORMAT  no request of the protocol, or past a limit;  FSDP_ERR_NOMEM  no memory, or the store is full
 * After a failure the client can only be closed.
 */
enum fsdp_status tcpstore_session_feed(struct tcpstore_session *session, const unsigned char **data,
                                       size_t *n, struct fsdp_err *err);

/** What it waited for has come: its answer is in `out`. */
void tcpstore_session_woken(struct tcpstore_session *session);

/** The bytes to be sent, the caller's to free; NULL, and *n is 0, when there are none. */
unsigned char *tcpstore_session_take(struct tcpstore_session *session, size_t *n);

/** Memory held for this client, apart from what its waits take among the keys. */
size_t tcpstore_session_held_bytes(const struct tcpstore_session *session);

#endif
