#include "agent/link/link_outbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/message.h"

enum { WAITING_BYTES_MAX = 4 << 20 };

/* A packet that the socket has not taken yet. */
struct link_waiting {
    struct link_waiting *next;
    size_t size_bytes;
    int fd; /* owned; -1: none */
    unsigned char bytes[];
};

static ssize_t send_packet(int socket, const void *bytes, size_t size_bytes, int fd)
{
    const struct iovec part = { .iov_base = (void *)bytes, .iov_len = size_bytes };

    return message_send(socket, &part, 1, &fd, fd >= 0);
}

bool outbox_is_full(int error)
{
    /* ETOOMANYREFS: too many descriptors are in flight; receivers take them as they read. */
    return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ETOOMANYREFS;
}

void outbox_init(struct link_outbox *outbox)
{
    *outbox = (struct link_outbox){ .end = &outbox->first };
}

static void drop_first(struct link_outbox *outbox)
{
    struct link_waiting *packet = outbox->first;

    outbox->first = packet->next;
    if (outbox->first == NULL)
        outbox->end = &outbox->first;
    outbox->waiting_bytes -= packet->size_bytes;
    if (packet->fd >= 0)
        close(packet->fd);
    free(packet);
}

void outbox_fini(struct link_outbox *outbox)
{
    while (outbox->first != NULL)
        drop_first(outbox);
}

bool outbox_is_empty(const struct link_outbox *outbox)
{
    return outbox->first == NULL;
}

enum fsdp_status outbox_flush(struct link_outbox *outbox, int socket, struct fsdp_err *err)
{
    while (outbox->first != NULL) {
        const struct link_waiting *packet = outbox->first;

        if (send_packet(socket, packet->bytes, packet->size_bytes, packet->fd) < 0)
            return outbox_is_full(errno) ? FSDP_OK : fsdp_fail(err, FSDP_ERR_PEER, "it is gone");
        drop_first(outbox);
    }
    return FSDP_OK;
}

static enum fsdp_status keep(struct link_outbox *outbox, const void *bytes, size_t size_bytes, int fd,
                             struct fsdp_err *err)
{
    struct link_waiting *packet;

    if (size_bytes > WAITING_BYTES_MAX - outbox->waiting_bytes)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "it does not read what it is sent");
    packet = malloc(sizeof *packet + size_bytes);
    if (packet == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    *packet = (struct link_waiting){ .size_bytes = size_bytes, .fd = -1 };
    memcpy(packet->bytes, bytes, size_bytes);
    if (fd >= 0 && (packet->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) {
        free(packet);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no descriptor left");
    }
    *outbox->end = packet;
    outbox->end = &packet->next;
    outbox->waiting_bytes += size_bytes;
    return FSDP_OK;
}

enum fsdp_status outbox_send_bytes(struct link_outbox *outbox, int socket, const void *bytes,
                                   size_t size_bytes, int fd, struct fsdp_err *err)
{
    if (outbox->first != NULL)
        return keep(outbox, bytes, size_bytes, fd, err);
    if (send_packet(socket, bytes, size_bytes, fd) >= 0)
        return FSDP_OK;
    return outbox_is_full(errno) ? keep(outbox, bytes, size_bytes, fd, err)
                                 : fsdp_fail(err, FSDP_ERR_PEER, "it is gone");
}

enum fsdp_status outbox_send(struct link_outbox *outbox, int socket, enum fsdp_link_type type, uint32_t tag,
                             const void *payload, size_t size_bytes, int fd, struct fsdp_err *err)
{
    const struct fsdp_link_header header = { .magic = FSDP_LINK_MAGIC,
                                             .version = FSDP_LINK_VERSION,
                                             .type = (uint16_t)type,
                                             .tag = tag,
                                             .size = (uint32_t)size_bytes };
    unsigned char *bytes = malloc(sizeof header + size_bytes);
    enum fsdp_status status;

    if (bytes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    memcpy(bytes, &header, sizeof header);
    if (size_bytes > 0)
        memcpy(bytes + sizeof header, payload, size_bytes);
    status = outbox_send_bytes(outbox, socket, bytes, sizeof header + size_bytes, fd, err);
    free(bytes);
    return status;
}
