/*
 * Whose process is at the other end of a TCP connection within this host. TCP has no SO_PEERCRED; the kernel's socket
 * diagnostics (sock_diag(7)) know the owner of every socket, and are asked for exactly one: the peer's, by the two
 * addresses of the connection. Where they cannot be used, /proc/net/tcp and tcp6 say the same, slower.
 *
 * Only a socket that some process still holds counts: one that has been closed belongs, as far as the kernel tells,
 * to root.
 */
#ifndef AGENT_TCPSTORE_OWNER_H
#define AGENT_TCPSTORE_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <fsdp/status.h>

/* One to be looked up: what getpeername() and getsockname() of our end say. */
struct tcpstore_connection {
    struct sockaddr_storage peer, own;
    bool found; /* the answer: somebody has it open, and that is ... */
    uid_t uid;
    unsigned long inode; /* of their socket */
};

/* How they are looked up: by the socket `netlink` while it works (-1: it does not), then by /proc. */
struct tcpstore_owners {
    int netlink; /* close-on-exec */
};

void tcpstore_owners_open(struct tcpstore_owners *owners);
void tcpstore_owners_close(struct tcpstore_owners *owners);

/**
 * Fill in `found` and `uid` of all n.
 *   FSDP_ERR_IO  neither way works; none is found
 */
enum fsdp_status tcpstore_owners_find(struct tcpstore_owners *owners, struct tcpstore_connection *connections,
                                      size_t n, struct fsdp_err *err);

/** The same address, IPv4 inside IPv6 being IPv4. Ports do not count. */
bool tcpstore_same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b);

#endif
