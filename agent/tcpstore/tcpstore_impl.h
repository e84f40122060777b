/*
 * Shared by the files of the store's server:
 *   tcpstore.c         opens the store, accepts connections and closes it; owns `struct tcpstore`
 *   tcpstore_listen.c  makes the sockets on which it listens
 *   tcpstore_client.c  moves the bytes of one connection; owns `struct tcpstore_client`
 */
#ifndef AGENT_TCPSTORE_IMPL_H
#define AGENT_TCPSTORE_IMPL_H

#include "agent/tcpstore/tcpstore.h"
#include "agent/tcpstore/tcpstore_addresses.h"
#include "agent/tcpstore/tcpstore_owner.h"
#include "agent/tcpstore/tcpstore_session.h"

enum { TCPSTORE_MAX_LISTENERS = 4, TCPSTORE_READ_BYTES = 64 << 10 };

/* Why a connection was closed. A line is printed for the first connection of each kind. */
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
    /* bytes that are being sent; until they are sent, no request of the client is read */
    unsigned char *sending;
    size_t sending_bytes;
    unsigned char *stash; /* (stash_n) bytes that came before reading stopped */
    size_t stash_n;
    size_t held_bytes; /* this client's part of store->held_bytes */
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
    uv_timer_t pause; /* runs while the store waits for a free descriptor before it accepts again */
    struct tcpstore_client *clients, *woken;
    struct tcpstore_addresses nodes;
    struct tcpstore_addresses own; /* addresses of this host; looked up only if the job has other nodes */
    size_t held_bytes;
    /* by the loop's clock: when a client last changed a key, or when the store was opened */
    uint64_t changed_ms;
    void (*say)(void *arg, const char *words);
    void (*came)(void *arg, const struct sockaddr_storage *from, unsigned long inode);
    void *say_arg; /* for `say` and `came` */
    uint64_t n_refused[TCPSTORE_REFUSALS];
    int n_handles;
    bool closing;
    unsigned char buffer[TCPSTORE_READ_BYTES];
};

/**
 * Listen at config->at and config->also, all on one port. Fills in store->port and store->listeners. The loop
 * does not watch the listeners yet. Errors are those of tcpstore_open(); after one, nothing is open.
 */
enum fsdp_status tcpstore_listen(struct tcpstore *store, const struct tcpstore_config *config,
                                 struct fsdp_err *err);

/** Serve the connection `fd`, which the client owns from now on. False: out of memory, and `fd` is closed. */
bool tcpstore_client_begin(struct tcpstore *store, int fd);
/** Close the client's connection; a close callback frees it. Closing it twice changes nothing. */
void tcpstore_client_close(struct tcpstore_client *client);
/** Called by tcpstore_keys when a wait of this client has ended: marks the client to be answered. */
void tcpstore_client_woken(void *store, void *client);

/** Count a refusal. The first of its kind prints the formatted line. */
void tcpstore_refuse(struct tcpstore *store, enum tcpstore_refusal kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** A handle of the loop is closed. With the last one, the store is freed. */
void tcpstore_handle_closed(struct tcpstore *store);

#endif
