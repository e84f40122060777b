#include "agent/doctor/node_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/core/message.h"
#include "shard_runtime/core/require.h"

/* Waits for a packet. If a descriptor comes with it, it is closed, because the doctor uses none. */
static enum fsdp_status receive(const struct node_link *link, struct fsdp_link_header *header, void *payload,
                                size_t room, struct fsdp_err *err)
{
    struct iovec parts[2] = { { header, sizeof *header }, { payload, room } };
    struct message_fds came = { .most = 0 };
    struct pollfd readable = { .fd = link->fd, .events = POLLIN };
    ssize_t n;

    do {
        poll(&readable, 1, -1);
        n = message_receive(link->fd, parts, 2, MSG_DONTWAIT, &came);
    } while (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
    if (n <= 0)
        return fsdp_fail(err, FSDP_ERR_PEER, "the agent of this node is gone");
    if ((size_t)n < sizeof *header || (came.cut & MSG_TRUNC) != 0 || header->magic != FSDP_LINK_MAGIC ||
        header->version != FSDP_LINK_VERSION || header->size != (size_t)n - sizeof *header)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the agent sent a packet that is not of the link's protocol");
    return FSDP_OK;
}

static enum fsdp_status send_packet(const struct node_link *link, enum fsdp_link_type type, uint32_t tag,
                                    const struct fsdp_link_put *key, const void *body, size_t n_bytes,
                                    struct fsdp_err *err)
{
    struct fsdp_link_header header = { .magic = FSDP_LINK_MAGIC,
                                       .version = FSDP_LINK_VERSION,
                                       .type = (uint16_t)type,
                                       .tag = tag,
                                       .size = (uint32_t)(sizeof *key + n_bytes) };
    const struct iovec parts[3] = { { &header, sizeof header },
                                    { (void *)(uintptr_t)key, sizeof *key },
                                    { (void *)(uintptr_t)body, n_bytes } };

    while (message_send(link->fd, parts, 3, NULL, 0) < 0) {
        struct pollfd writable = { .fd = link->fd, .events = POLLOUT };

        if (errno != EAGAIN)
            return fsdp_fail(err, FSDP_ERR_PEER, "the agent of this node: %s", strerror(errno));
        poll(&writable, 1, 100);
    }
    return FSDP_OK;
}

enum fsdp_status node_link_open(struct node_link *link, int fd, struct fsdp_err *err)
{
    struct fsdp_link_header header;

    *link = (struct node_link){ .fd = fd };
    OK_OR_RETURN(receive(link, &header, &link->hello, sizeof link->hello, err));
    if (header.type != FSDP_LINK_HELLO || header.size != sizeof link->hello || link->hello.world_size == 0 ||
        link->hello.rank >= link->hello.world_size)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the agent did not say which rank this is");
    return FSDP_OK;
}

enum fsdp_status node_link_put(struct node_link *link, const char *name, int rank, const void *value,
                               size_t n_bytes, struct fsdp_err *err)
{
    struct fsdp_link_put put = { .key = "" };

    if (n_bytes > FSDP_LINK_VALUE_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "a value of %zu bytes is too long", n_bytes);
    snprintf(put.key, sizeof put.key, "doctor/%s/%d", name, rank);
    return send_packet(link, FSDP_LINK_PUT, 0, &put, value, n_bytes, err);
}

enum fsdp_status node_link_get(struct node_link *link, const char *name, int rank, char *value,
                               size_t *n_bytes, struct fsdp_err *err)
{
    struct fsdp_link_put get = { .key = "" }; /* a GET has the same form: struct fsdp_link_get */
    struct fsdp_link_header header;

    static_assert(sizeof get == sizeof(struct fsdp_link_get), "a GET is a key, as the head of a PUT");
    snprintf(get.key, sizeof get.key, "doctor/%s/%d", name, rank);
    OK_OR_RETURN(send_packet(link, FSDP_LINK_GET, ++link->tag, &get, NULL, 0, err));
    do {
        OK_OR_RETURN(receive(link, &header, value, FSDP_LINK_VALUE_BYTES, err));
        if (header.type == FSDP_LINK_NOTICE)
            return fsdp_fail(err, FSDP_ERR_PEER, "another node is gone");
    } while (header.type != FSDP_LINK_VALUE || header.tag != link->tag);
    *n_bytes = header.size;
    value[header.size] = '\0';
    return FSDP_OK;
}
