/*
 * Which user owns the other end of a TCP connection within this host. TCP has no SO_PEERCRED. The kernel's
 * socket diagnostics (sock_diag(7)) know the owner of every socket. This module asks for one socket, the
 * peer's, by the two addresses of the connection. If they cannot be used, /proc/net/tcp and tcp6 give the
 * same, slower.
 *
 * A socket counts only while a process has it open. The kernel says that a closed socket belongs to root.
 */
#ifndef AGENT_TCPSTORE_OWNER_H
#define AGENT_TCPSTORE_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <fsdp/status.h>

/* A connection to look up: the addresses that getpeername() and getsockname() give for our end. */
struct tcpstore_connection {
    struct sockaddr_storage peer, own;
    bool found; /* result: a process has the peer's socket open; uid and inode are valid */
    uid_t uid;
    unsigned long inode; /* of the peer's socket */
};

/* The way to look up: by the socket `netlink`, or by /proc once that has failed (netlink is -1). */
struct tcpstore_owners {
    int netlink; /* close-on-exec */
};

/** Open the netlink socket. If that fails, lookups use /proc. */
void tcpstore_owners_open(struct tcpstore_owners *owners);
/** Close the netlink socket; lookups use /proc from now on. */
void tcpstore_owners_close(struct tcpstore_owners *owners);

/**
 * Fill in `found`, `uid` and `inode` of all n connections.
 *   FSDP_ERR_IO  neither way works, and `found` is false for all
 */
enum fsdp_status tcpstore_owners_find(struct tcpstore_owners *owners, struct tcpstore_connection *connections,
                                      size_t n, struct fsdp_err *err);

/** Are these the same address? Ports do not count, and IPv4 inside IPv6 equals IPv4. */
bool tcpstore_same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b);

#endif
