/*
 * The key-value store that PyTorch's processes meet at, as a server on the agent's loop: one for each generation, on a
 * port of its own, gone with everything in it when the generation's last worker is.
 *
 * The protocol proves nothing about who speaks it, so that a connection is judged by where it comes from, before a
 * byte of it is read: from this host only sockets of our own uid (agent/tcpstore/tcpstore_owner.h), from elsewhere only the
 * addresses of the job's nodes. What is refused is closed at once, counted, and said once.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_TCPSTORE_H
#define AGENT_TCPSTORE_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include <fsdp/status.h>

enum {
    TCPSTORE_MAX_KEPT_BYTES = 1 << 30, /* keys, values and waits, of all together */
    TCPSTORE_MAX_HELD_BYTES =
        256 << 20 /* requests that have not ended and answers that are not sent, of all together */
};

struct tcpstore;

struct tcpstore_config {
    const char *host;          /* where it listens, in words */
    const struct addrinfo *at; /* its addresses: every one of them that this host has */
    const struct addrinfo
        *also;                /* and here; NULL: nowhere else. Many hosts know their own name as 127.0.1.1 */
    int port;                 /* 0: a free one ... */
    int other_than;           /* ... that is not this: the last generation's */
    const char *const *nodes; /* (n_nodes) addresses of the job's nodes; borrowed for the call */
    size_t n_nodes;
    void (*say)(void *arg, const char *words); /* a line for the user */
    /* One has come that is welcome, from that address; `inode` of its socket where it is of this host, else 0. Or NULL. */
    void (*came)(void *arg, const struct sockaddr_storage *from, unsigned long inode);
    void *arg;
};

/**
 *   FSDP_ERR_BUSY  the port is in use;  FSDP_ERR_IO  it is not of this host
 */
enum fsdp_status tcpstore_open(struct tcpstore **out, uv_loop_t *loop, const struct tcpstore_config *config,
                               struct fsdp_err *err);

int tcpstore_port(const struct tcpstore *store);

/** Every connection is cut, and the port is free. The memory is gone when the loop has run. NULL is a no-op. */
void tcpstore_close(struct tcpstore *store);

#endif
