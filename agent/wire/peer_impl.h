/*
 * Shared by three files. peer.c has one connection, peer_address.c the addresses of a connection.
 * peer_listener.c decides which connections are accepted, and how many unproven ones are held.
 */
#ifndef AGENT_PEER_IMPL_H
#define AGENT_PEER_IMPL_H

#include "agent/wire/peer.h"
#include "agent/wire/tls.h"

struct peer {
    uv_tcp_t tcp;
    uv_timer_t timer; /* limits the time until the peer is admitted, and the time that closing takes */
    uv_connect_t connecting;
    struct peer_config config;
    struct peer_listener *listener; /* NULL: this side connected */
    /* place in the listener's list of unproven peers; link NULL: it is in no list */
    struct peer *next, **link;
    struct peer_source *source;   /* while it is in the list */
    struct sockaddr_storage from; /* address of the other side, if the peer was accepted */
    struct tls *tls;              /* NULL: clear text */
    struct frame_parser parser;
    struct fsdp_err why;
    void *data;
    uint64_t n_received; /* bytes from the other side */
    uint64_t ticked_ms;  /* when the time until peer_admit() was last looked at */
    int n_ticks;         /* that counted */
    int n_open;          /* handles whose memory the loop still holds */
    bool connected, opened, admitted, ended, left, closing;
    char name[80];
};

/**
 * Create a peer that has no connection yet. Its timer runs. Returns NULL, with the reason in `err`, on
 * failure.
 *   config    copied; its TLS context is only used during the call
 *   listener  the listener that accepts it; NULL: this side connects
 */
struct peer *peer_create(uv_loop_t *loop, const struct peer_config *config, struct peer_listener *listener,
                         struct fsdp_err *err);
/** The connection is made: set the limits of its socket, and begin to read and to shake hands. */
void peer_begin(struct peer *peer);
/** Call peer_close() with this status and these words. */
void peer_fail(struct peer *peer, enum fsdp_status status, const char *words);

/** Set the peer's name, "HOST:PORT" of the other side. */
void peer_find_name(struct peer *peer);
/** Get the address of the other side (or, `ours`, of this side). AF_UNSPEC if it is unknown. */
void peer_find_address(const struct peer *peer, bool ours, struct sockaddr_storage *address);
/** Print the host of an address ("?" if it is neither IPv4 nor IPv6), and set *port to its port, or 0. */
void peer_format_address(const struct sockaddr_storage *address, char *host, size_t size, int *port);

/** Take the peer off the list of unproven peers. A no-op if it is not in the list. */
void peer_listener_proven(struct peer *peer);
/** An accepted peer is freed. If the listener is closed, the last such call frees the listener. */
void peer_listener_forget(struct peer_listener *listener);

#endif
