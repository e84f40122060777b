/*
 * Messages of a local socket (unix(7)), which may carry descriptors (SCM_RIGHTS). The functions keep no
 * state; any thread may call them.
 */
#ifndef CORE_MESSAGE_H
#define CORE_MESSAGE_H

#include <stddef.h>
#include <sys/uio.h>

enum { MESSAGE_FDS = 3 }; /* the most descriptors that one message carries */

/** The descriptors that came with a message. They are the caller's, and closed on exec. */
struct message_fds {
    int most;             /* set by the caller: how many are kept, at most MESSAGE_FDS */
    int fds[MESSAGE_FDS]; /* those that were kept; -1: none */
    int n;                /* descriptors that were kept; others that came are closed already */
    /* MSG_TRUNC: the message had more bytes than fit; MSG_CTRUNC: more descriptors; 0: neither */
    int cut;
};

/**
 * Sends the parts as one message, with `n_fds` descriptors, which remain the caller's. Returns the result of
 * sendmsg(). It never waits and raises no SIGPIPE; it is repeated after EINTR.
 */
ssize_t message_send(int socket, const struct iovec *parts, size_t n_parts, const int *fds, int n_fds);

/**
 * Receives a message into the parts. Returns the result of recvmsg(); it is repeated after EINTR.
 *
 *   flags  0: waits for a message; MSG_DONTWAIT
 *   *came  receives the descriptors: none after an error
 */
ssize_t message_receive(int socket, struct iovec *parts, size_t n_parts, int flags, struct message_fds *came);

#endif
