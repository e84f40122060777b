/*
 * What the files of the store's server share: tcpstore.c opens, accepts and closes, tcpstore_listen.c makes the sockets
 * that it listens on, tcpstore_client.c moves the bytes of one connection.
 */
#ifndef AGENT_TCPSTORE_IMPL_H
#define AGENT_TCPSTORE_IMPL_H

#include "agent/tcpstore/tcpstore.h"
#include "agent/tcpstore/tcpstore_owner.h"
#include "agent/tcpstore/tcpstore_session.h"

enum { TCPSTORE_MAX_LISTENERS = 4, TCPSTORE_READ_BYTES = 64 << 10 };

/* Why a connection is cut by us; each kind is said once. */
enum tcpstore_refusal {
    TCPSTORE_REFUSED_ADDRESS,
    TCPSTORE_REFUSED_USER,
    TCPSTORE_REFUSED_REQUEST,
    TCPSTORE_REFUSED_DESCRIPTORS,
    TCPSTORE_REFUSALS
};

struct tcpstore_client {
    uv_tcp_t tcp; /* `data` is the client */
    uv_write_t write;
    struct tcpstore *store;
    struct tcpstore_client *prev, *next, *next_woken;
    struct tcpstore_session session;
    unsigned char *sending; /* under way; nothing more is taken from the client until it is sent */
    size_t sending_bytes;
    unsigned char *stash; /* (stash_n) bytes that came before it was stopped */
    size_t stash_n;
    size_t held_bytes; /* as counted in store->held_bytes */
    bool woken, closing;
};

struct tcpstore_listener {
    uv_poll_t poll; /* `data` is the store */
    int fd;
};

struct tcpstore {
    uv_loop_t *loop;
    struct tcpstore_keys *keys;
    struct tcpstore_owners owners;
    struct tcpstore_listener listeners[TCPSTORE_MAX_LISTENERS];
    int n_listeners, port;
    uv_timer_t pause; /* runs while no descriptor is left for one more connection */
    struct tcpstore_client *clients, *woken;
    struct sockaddr_storage *nodes;
    size_t n_nodes, held_bytes;
    struct sockaddr_storage *own; /* (n_own) addresses of this host; looked up where there are other nodes */
    size_t n_own;
    void (*say)(void *arg, const char *words);
    void (*came)(void *arg, const struct sockaddr_storage *from, unsigned long inode);
    void *say_arg; /* of both */
    uint64_t n_refused[TCPSTORE_REFUSALS];
    int n_handles;
    bool closing;
    unsigned char buffer[TCPSTORE_READ_BYTES];
};

/**
 * Listen at config->at and ->also, all at one port: store->listeners (their descriptors, not yet watched) and ->port.
 * After a failure, as of tcpstore_open(), nothing is open.
 */
enum fsdp_status tcpstore_listen(struct tcpstore *store, const struct tcpstore_config *config,
                                 struct fsdp_err *err);

/** Serve the connection `fd`, which is the client's from here on. False: no memory, and it is closed. */
bool tcpstore_client_begin(struct tcpstore *store, int fd);
void tcpstore_client_close(struct tcpstore_client *client);
/** The client waited and is to be answered; tcpstore_keys calls it. */
void tcpstore_client_woken(void *store, void *client);

/** Count one, and say it if it is the first of its kind. */
void tcpstore_refuse(struct tcpstore *store, enum tcpstore_refusal kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** One handle less; with the last one the store is freed. */
void tcpstore_handle_closed(struct tcpstore *store);

#endif
