/*
 * What peer.c (a connection), peer_address.c (its addresses) and peer_listener.c (who comes in, and how many strangers
 * are held) share.
 */
#ifndef AGENT_PEER_IMPL_H
#define AGENT_PEER_IMPL_H

#include "agent/wire/peer.h"
#include "agent/wire/tls.h"

enum { PEER_READ_BYTES = 65536 };

struct peer {
    uv_tcp_t tcp;
    uv_timer_t timer; /* the handshake's limit, then signs of life */
    uv_connect_t connecting;
    struct peer_config config;
    struct peer_listener *listener; /* NULL: we connected */
    struct peer *next, **link;      /* among the listener's unproven ones; link NULL: not one of them */
    struct sockaddr_storage from;   /* of one of those */
    struct tls *tls;                /* NULL: clear text */
    struct frame_parser parser;
    struct fsdp_err why;
    void *data;
    uint64_t born_ms, heard_ms;
    int n_open; /* handles whose memory the loop still holds */
    bool spoke; /* a byte has come from the other side */
    bool opened, admitted, closing;
    unsigned char buffer[PEER_READ_BYTES];
    char name[80];
};

/**
 * A peer without a connection, whose timer runs; NULL, and `err`, when it cannot be made.
 *   listener  NULL: a client
 *   tls       NULL: clear text; not looked at after the call. The key in `config` is not looked at.
 */
struct peer *peer_create(uv_loop_t *loop, const struct peer_config *config, struct peer_listener *listener,
                         const struct tls_context *tls, struct fsdp_err *err);
/** The connection stands: set its limits and begin to talk. */
void peer_begin(struct peer *peer);
/** peer_close() with these words. */
void peer_fail(struct peer *peer, enum fsdp_status status, const char *words);

/** Set the peer's name, "HOST:PORT" of the other side. */
void peer_find_name(struct peer *peer);
/** The address of the other side, or of ours, as the connection shows it; AF_UNSPEC when there is none. */
void peer_find_address(const struct peer *peer, bool ours, struct sockaddr_storage *address);
/** The host of an address as text ("?" of a family that is none of ours), and its port or 0. */
void peer_format_address(const struct sockaddr_storage *address, char *host, size_t size, int *port);

/** It is admitted, or gone, or cut: it counts among the unproven no more. Nothing happens when it did not. */
void peer_listener_proven(struct peer *peer);
/** An accepted peer is gone; the listener goes with the last one if it was closed. */
void peer_listener_forget(struct peer_listener *listener);

#endif
