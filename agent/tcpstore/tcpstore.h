/*
 * The key-value store at which PyTorch's processes meet, as a server on the agent's loop. Each generation has
 * its own store, on its own port. It ends, with all its keys, when the generation's last worker is gone.
 *
 * The protocol has no authentication. So a connection is judged by its origin, before any byte of it is read:
 *   - From this host, only sockets of our own uid are served (agent/tcpstore/tcpstore_owner.h).
 *   - From other hosts, only the addresses of the job's nodes are served.
 * A refused connection is closed at once and counted. The first refusal of each kind prints a line.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_TCPSTORE_H
#define AGENT_TCPSTORE_H

#include <netdb.h>
#include <stddef.h>
#include <sys/socket.h>
#include <uv.h>

#include <fsdp/status.h>

enum {
    /* keys, values and waits of all clients together */
    TCPSTORE_MAX_KEPT_BYTES = 1 << 30,
    /* unfinished requests and unsent answers of all clients together */
    TCPSTORE_MAX_HELD_BYTES = 256 << 20
};

struct tcpstore;

struct tcpstore_config {
    const char *host; /* where it listens, in words; for messages */
    /* The addresses of `host`. The store listens at each of them that belongs to this host. */
    const struct addrinfo *at;
    /* More addresses to listen at, or NULL. Many hosts know their own name only as 127.0.1.1. */
    const struct addrinfo *also;
    int port;                 /* 0: any free port other than `other_than` */
    int other_than;           /* the port of the last generation */
    const char *const *nodes; /* (n_nodes) addresses of the job's nodes; borrowed for the call */
    size_t n_nodes;
    void (*say)(void *arg, const char *words); /* prints a line for the user */
    /*
     * Optional: called for each accepted connection, with its address. `inode` is the inode of its socket if
     * the connection comes from this host, else 0.
     */
    void (*came)(void *arg, const struct sockaddr_storage *from, unsigned long inode);
    void *arg;
};

/**
 * Open a store and listen. Nothing of `config` is kept but its callbacks and `arg`. After an error nothing is
 * open.
 *   FSDP_ERR_BUSY  the port is in use
 *   FSDP_ERR_IO    no address belongs to this host
 */
enum fsdp_status tcpstore_open(struct tcpstore **out, uv_loop_t *loop, const struct tcpstore_config *config,
                               struct fsdp_err *err);

/** Milliseconds since a client last changed a key. If no client has, since the store was opened. */
int64_t tcpstore_idle_ms(const struct tcpstore *store);

/** The port at which the store listens. */
int tcpstore_port(const struct tcpstore *store);

/**
 * Close every connection and free the port. The loop's close callbacks free the memory. NULL is a no-op.
 */
void tcpstore_close(struct tcpstore *store);

#endif
