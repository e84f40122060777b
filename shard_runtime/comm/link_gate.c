#include "shard_runtime/comm/link_gate.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "shard_runtime/core/require.h"

struct gate_packet {
    struct fsdp_link_header header;
    char environment[FSDP_LINK_GATE_BYTES];
};

/*
 * Takes the descriptors of a message. Returns how many they were; only two are kept, and all others are
 * closed.
 */
static int take_streams(struct msghdr *message, int streams[2])
{
    int n_all = 0;

    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
        size_t n = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(at) + i * sizeof fd, sizeof fd);
            if (n_all < 2)
                streams[n_all] = fd;
            else
                close(fd);
            n_all++;
        }
    }
    return n_all;
}

/* Receives one packet into `packet`. *n is its size; 0: the agent has closed its end. */
static enum fsdp_status receive(int socket, struct gate_packet *packet, ssize_t *n, int streams[2],
                                struct fsdp_err *err)
{
    struct iovec part = { packet, sizeof *packet };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    int n_streams;

    do
        *n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (*n < 0 && errno == EINTR);
    if (*n < 0 && errno != ECONNRESET)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "waiting at the gate: %s", strerror(errno));
    if (*n <= 0) {
        *n = 0;
        return FSDP_OK;
    }
    n_streams = take_streams(&message, streams);
    if (n_streams != 2 || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
        (size_t)*n < sizeof packet->header || packet->header.magic != FSDP_LINK_MAGIC ||
        packet->header.version != FSDP_LINK_VERSION || packet->header.type != FSDP_LINK_GATE ||
        packet->header.size != (size_t)*n - sizeof packet->header)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "what the agent sent first opens no gate");
    return FSDP_OK;
}

/* Sets the variables of `text`, (n_bytes) "NAME=value" texts, each with its zero. */
static enum fsdp_status set_environment(char *text, size_t n_bytes, struct fsdp_err *err)
{
    for (char *at = text, *end = text + n_bytes; at < end; at += strlen(at) + 1) {
        char *equals = memchr(at, '=', (size_t)(end - at));

        if (memchr(at, '\0', (size_t)(end - at)) == NULL || equals == NULL || equals > at + strlen(at))
            return fsdp_fail(err, FSDP_ERR_FORMAT, "the agent's environment has a text that is no variable");
        *equals = '\0';
        if (setenv(at, equals + 1, 1) < 0)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the environment");
        *equals = '=';
    }
    return FSDP_OK;
}

enum fsdp_status link_gate_wait(bool *opened, struct fsdp_err *err)
{
    const char *text = getenv(FSDP_LINK_FD_ENV);
    struct gate_packet *packet = NULL;
    int streams[2] = { -1, -1 };
    enum fsdp_status status;
    ssize_t n = 0;

    *opened = false;
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "there is no agent that could open the gate");
    packet = malloc(sizeof *packet);
    if (packet == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the agent's packet");
    status = receive((int)strtol(text, NULL, 10), packet, &n, streams, err);
    if (status == FSDP_OK && n > 0)
        status = set_environment(packet->environment, packet->header.size, err);
    if (status == FSDP_OK && n > 0) {
        *opened = dup2(streams[0], STDOUT_FILENO) >= 0 && dup2(streams[1], STDERR_FILENO) >= 0;
        if (!*opened)
            status = fsdp_fail(err, FSDP_ERR_IO, "the streams of the worker: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++)
        if (streams[i] >= 0)
            close(streams[i]);
    free(packet);
    return status;
}
