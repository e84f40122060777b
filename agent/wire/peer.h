/*
 * One connection between two agents: TCP, TLS 1.3 with the job's key (agent/wire/tls.h), frames (agent/wire/frame.h), and
 * signs of life in both directions. A connection is lost when it is reset, when nothing arrives for `lost_ms`, or when
 * what arrives is not ours.
 *
 * Strangers cost a listener little and change nothing. It cuts a connection that does not prove itself within
 * `handshake_ms`. It holds at most PEER_MAX_UNPROVEN such connections, and PEER_MAX_UNPROVEN_OF_SOURCE from one
 * address. When one more comes, the oldest that has said nothing is cut: of that address, if it has all it may. If
 * all have said something, the oldest is cut. So idle connections keep no node out, though they are renewed.
 * Admitted peers are not counted: any number of nodes may come from one address (NAT).
 *
 * Every callback runs on the loop's thread. closed() is called exactly once for each peer, is the last call, and
 * after it the peer is gone. Calls of this header may be made from within any callback.
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
    PEER_BEAT_FRAME = 0 /* frame type of a sign of life; handlers never see it */
};

struct peer;
struct peer_listener;

struct peer_handlers {
    void (*accepted)(void *arg,
                     struct peer *peer); /* a listener took a connection; nothing is proven; may be NULL */
    void (*opened)(void *arg, struct peer *peer); /* the other side holds the key; frames may be sent */
    void (*frame)(void *arg, struct peer *peer, const struct frame *frame);
    void (*closed)(void *arg, struct peer *peer, const struct fsdp_err *why);
};

struct peer_config {
    const unsigned char *key; /* (TLS_KEY_BYTES), copied; NULL: clear text, only where it was asked for */
    uint64_t job;             /* in every frame; one that carries another closes its connection */
    int64_t handshake_ms;     /* from the connection to peer_admit() */
    int64_t beat_ms, lost_ms; /* between signs of life; silence that loses the peer */
    struct peer_handlers handlers;
    void *arg;
};

/** handshake 5 s, beats every 0.5 s, lost after 3 s; no key, no handlers. */
void peer_config_init(struct peer_config *config);

/**
 * Listen on `address`. Each connection becomes a peer with `config` (copied).
 *   FSDP_ERR_BUSY       another socket listens there
 *   FSDP_ERR_NOT_FOUND  it is no address of this host
 *   FSDP_ERR_IO         it cannot be bound
 */
enum fsdp_status peer_listen(struct peer_listener **out, uv_loop_t *loop, const struct sockaddr *address,
                             const struct peer_config *config, struct fsdp_err *err);
/** The port that is listened on. */
int peer_listener_port(const struct peer_listener *listener);
/** Take no more connections and cut those that were not admitted; the others stay. Gone when the loop has run. */
void peer_listener_close(struct peer_listener *listener);

/** Begin to connect, once; a failure is told by closed(). */
enum fsdp_status peer_connect(struct peer **out, uv_loop_t *loop, const struct sockaddr *address,
                              const struct peer_config *config, struct fsdp_err *err);

/** The peer has said who it is and is one of ours: large frames are taken from it, and no handshake limit runs. */
void peer_admit(struct peer *peer);

/** Queue one frame. A peer whose queue passes 64 MiB is too slow and is closed. No effect on a closing peer. */
void peer_send(struct peer *peer, uint16_t type, uint32_t generation, const void *payload, size_t size_bytes);

/** Close after what is queued has been sent, or at once when `why` tells of a failure; closed() gets `why`. */
void peer_close(struct peer *peer, const struct fsdp_err *why);

/** The caller's own, NULL at first. */
void peer_set_data(struct peer *peer, void *data);
void *peer_data(const struct peer *peer);
/** For how long nothing was heard of it. */
int64_t peer_silent_ms(const struct peer *peer);
/** "10.0.0.2:4312" of the other side; "?" when unknown. */
const char *peer_name(const struct peer *peer);
/** The address alone, of the other side or of ours as the connection shows it. */
void peer_address(const struct peer *peer, bool ours, char *out, size_t size);

#endif
