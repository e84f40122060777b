/*
 * One connection between two agents: TCP, TLS 1.3 with the job's key (agent/wire/tls.h), and frames
 * (agent/wire/frame.h). A connection is lost when it is reset or closed, or when the bytes that arrive are no
 * frames of this job. Whether the other end is alive is judged by its session (agent/wire/session.h).
 *
 * A listener limits what strangers cost. A connection is unproven until peer_admit() is called for it:
 *   - The listener closes a connection that is still unproven after `handshake_ms`. Time in which this end's
 *     own loop was blocked does not count.
 *   - It holds at most PEER_MAX_UNPROVEN unproven connections in all, and PEER_MAX_UNPROVEN_OF_SOURCE from
 *     one address. Both limits grow by the number of expected peers (peer_listener_expect()). When one more
 *     comes, it closes the oldest one that has sent no byte, or the oldest one if all have sent some. If the
 *     newcomer's address has reached its limit, only connections from that address are candidates.
 *   - So idle connections cannot keep a node out, even if their owner opens them again and again.
 *   - Admitted peers do not count, so any number of nodes may come from one address (NAT).
 *
 * Every callback runs on the loop's thread. closed() is called exactly once for each peer, as the last
 * callback; after it the peer no longer exists. Any callback may call any function of this header.
 */
#ifndef AGENT_PEER_H
#define AGENT_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/wire/frame.h"

enum {
    PEER_MAX_UNPROVEN = 64,
    PEER_MAX_UNPROVEN_OF_SOURCE = 32,
    PEER_SCRATCH_BYTES = 65536 /* a read takes at most so much */
};

struct peer;
struct peer_listener;
struct tls_context;

struct peer_handlers {
    /* A listener has accepted a connection, which has proven nothing so far. May be NULL. */
    void (*accepted)(void *arg, struct peer *peer);
    /* The other side has proven that it holds the key. From now on frames may be sent. May be NULL. */
    void (*opened)(void *arg, struct peer *peer);
    void (*frame)(void *arg, struct peer *peer, const struct frame *frame);
    /*
     * The queue has become shorter (peer_queued()): the socket has taken bytes that it did not take at once.
     * May be NULL.
     */
    void (*sent)(void *arg, struct peer *peer);
    void (*closed)(void *arg, struct peer *peer, const struct fsdp_err *why);
};

struct peer_config {
    /* Made with the job's key, and borrowed; NULL: clear text, for which the user must have asked. */
    const struct tls_context *tls;
    /* (TLS_IDENTITY_BYTES) the identity that peer_connect() proves; NULL: none. Borrowed during the call */
    const unsigned char *identity;
    uint64_t job;         /* the number in every frame; a frame with another number ends its connection */
    int64_t handshake_ms; /* the longest time from the connection to peer_admit() */
    int64_t unsent_ms;    /* TCP gives up a connection if sent bytes were not received for so long */
    /*
     * (PEER_SCRATCH_BYTES) Holds bytes on their way between the socket and a peer. All peers of a loop share
     * it, because no byte stays in it after a read or a peer_send(). Borrowed until the last closed().
     */
    unsigned char *scratch;
    struct peer_handlers handlers;
    void *arg;
};

/** Set the defaults: 5 s for the handshake, 3 s for unsent data; no key, no handlers, no scratch yet. */
void peer_config_init(struct peer_config *config);

/**
 * Listen on `address`. Each connection becomes a peer with `config`, which is copied. Its TLS context is
 * borrowed until peer_listener_close().
 *   FSDP_ERR_BUSY       another socket listens there
 *   FSDP_ERR_NOT_FOUND  it is no address of this host
 *   FSDP_ERR_IO         it cannot be bound
 */
enum fsdp_status peer_listen(struct peer_listener **out, uv_loop_t *loop, const struct sockaddr *address,
                             const struct peer_config *config, struct fsdp_err *err);
/** From now on `n_expected` peers are expected, perhaps all at once. At first it is 0. */
void peer_listener_expect(struct peer_listener *listener, int n_expected);
/** Returns the port on which it listens. */
int peer_listener_port(const struct peer_listener *listener);
/**
 * Accept no more connections, and close the unproven ones; admitted peers stay. Close callbacks free the
 * listener.
 */
void peer_listener_close(struct peer_listener *listener);

/**
 * Try once to connect. If that fails, closed() is called with the reason: FSDP_ERR_NOT_FOUND if no process
 * listens there. `config` is copied.
 */
enum fsdp_status peer_connect(struct peer **out, uv_loop_t *loop, const struct sockaddr *address,
                              const struct peer_config *config, struct fsdp_err *err);

/**
 * The caller has found that the peer belongs to the job. From now on large frames are accepted from it, and
 * the limit of the handshake no longer applies.
 */
void peer_admit(struct peer *peer);

/**
 * Queue one frame; its `job` is filled in. A peer with more than 64 MiB in its queue is too slow, and is
 * closed. No effect on a peer that is not open yet, or is being closed.
 */
void peer_send(struct peer *peer, const struct frame *frame);
/** Returns how many bytes wait in the queue. */
size_t peer_queued(const struct peer *peer);

/**
 * Close the connection after the queued frames were sent, for which half a second is allowed. Called a second
 * time with a failure in `why`, it does not wait. closed() receives the first `why`; NULL: no failure.
 */
void peer_close(struct peer *peer, const struct fsdp_err *why);
/**
 * Close the connection at once with a TCP reset, so that the other end does not see an orderly end. closed()
 * receives no failure, or the `why` of an earlier peer_close().
 */
void peer_reset(struct peer *peer);

/** Two functions: set a pointer that belongs to the caller, and get it. It is NULL at first. */
void peer_set_data(struct peer *peer, void *data);
void *peer_data(const struct peer *peer);
/**
 * Returns the identity (TLS_IDENTITY_BYTES) that the other end of an accepted connection has proven; NULL:
 * none, as in clear text. Only after opened().
 */
const unsigned char *peer_identity(const struct peer *peer);
/** Returns how many bytes have come from the other end. */
uint64_t peer_received(const struct peer *peer);
/**
 * Returns how many bytes were sent that the other host's kernel has not acknowledged. 0 means that the
 * network works in both directions, whatever the process at the other end does.
 */
size_t peer_unacknowledged(const struct peer *peer);
/** Is TCP connected? */
bool peer_connected(const struct peer *peer);
/** Has the other end closed the connection in order (FIN)? */
bool peer_ended(const struct peer *peer);
/** Did the connection end from outside: was it closed or reset by the other end, or broken by the network? */
bool peer_left(const struct peer *peer);
/** Returns the address and port of the other side as text, "10.0.0.2:4312"; "?" if unknown. */
const char *peer_name(const struct peer *peer);
/** Print the address of the other side (or, `ours`, of this side) of the connection, without its port. */
void peer_address(const struct peer *peer, bool ours, char *out, size_t size);

#endif
