#include "shard_runtime/core/message.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM_FDS = 8 };

/* Room for descriptors, aligned as cmsg(3) wants it. */
union room {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(ROOM_FDS * sizeof(int))];
};

ssize_t message_send(int socket, const struct iovec *parts, size_t n_parts, const int *fds, int n_fds)
{
    struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = n_parts };
    const size_t size_bytes = (size_t)n_fds * sizeof *fds;
    union room room = { .bytes = { 0 } };
    ssize_t n;

    assert(n_fds <= MESSAGE_FDS);
    if (n_fds > 0) {
        message.msg_control = room.bytes;
        message.msg_controllen = CMSG_SPACE(size_bytes);
        room.head.cmsg_level = SOL_SOCKET;
        room.head.cmsg_type = SCM_RIGHTS;
        room.head.cmsg_len = CMSG_LEN(size_bytes);
        memcpy(CMSG_DATA(&room.head), fds, size_bytes);
    }
    do
        n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n;
}

static void take_fds(struct msghdr *message, struct message_fds *came)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (came->n < came->most)
                came->fds[came->n] = fd;
            else
                close(fd);
            came->n++;
        }
    }
}

ssize_t message_receive(int socket, struct iovec *parts, size_t n_parts, int flags, struct message_fds *came)
{
    union room room;
    struct msghdr message = { .msg_iov = parts,
                              .msg_iovlen = n_parts,
                              .msg_control = room.bytes,
                              .msg_controllen = sizeof room.bytes };
    ssize_t n;

    assert(came->most <= MESSAGE_FDS);
    *came = (struct message_fds){ .most = came->most, .fds = { -1, -1, -1 } };
    do
        n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        take_fds(&message, came);
    came->cut = n >= 0 ? message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) : 0;
    return n;
}
