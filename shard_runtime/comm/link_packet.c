/*
 * The packets of the link: sending, receiving, and putting away what comes without being asked for.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/comm/link_impl.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/message.h"
#include "shard_runtime/core/require.h"

/* A job is a few KiB of JSON. A file larger than this cannot be one. */
enum { JOB_BYTES_MAX = 16 << 20 };

/* While a call waits for an answer, it checks the progress page's abort word this often. */
enum { ABORT_SLICE_MS = 100 };

/* Returns FSDP_OK, or the failure that sticks, with its words in `err`. */
static enum fsdp_status say_broken(struct link *link, struct fsdp_err *err)
{
    enum fsdp_status status;

    pthread_mutex_lock(&link->state);
    status = link->broken.status;
    if (status != FSDP_OK)
        fsdp_fail(err, status, "%s", link->broken.message);
    pthread_mutex_unlock(&link->state);
    return status;
}

enum fsdp_status link_break(struct link *link, enum fsdp_status status, const char *words,
                            struct fsdp_err *err)
{
    pthread_mutex_lock(&link->state);
    if (link->broken.status == FSDP_OK)
        fsdp_fail(&link->broken, status, "%s", words);
    pthread_mutex_unlock(&link->state);
    return say_broken(link, err);
}

static enum fsdp_status agent_gone(struct link *link, struct fsdp_err *err)
{
    return link_break(link, FSDP_ERR_PEER, "the agent that started this process is gone", err);
}

void link_drop_fd(struct packet *packet)
{
    if (packet->fd >= 0)
        close(packet->fd);
    packet->fd = -1;
}

enum fsdp_status link_receive(struct link *link, bool *got, struct fsdp_err *err)
{
    struct packet *packet = link->packet;
    struct iovec parts[2] = { { &packet->header, sizeof packet->header },
                              { packet->payload, sizeof packet->payload } };
    struct message_fds came = { .most = 1 };
    ssize_t n;

    *got = false;
    link_drop_fd(packet);
    OK_OR_RETURN(say_broken(link, err));
    n = message_receive(link->fd, parts, 2, MSG_DONTWAIT, &came);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return FSDP_OK;
    if (n < 0 && errno != ECONNRESET)
        return link_break(link, FSDP_ERR_IO, strerror(errno), err);
    if (n <= 0)
        return agent_gone(link, err);
    packet->fd = came.fds[0];
    if (came.n > 1 || (came.cut & MSG_CTRUNC) != 0)
        return link_break(link, FSDP_ERR_FORMAT, "the agent sent a packet with too many descriptors", err);
    if ((came.cut & MSG_TRUNC) != 0)
        return link_break(link, FSDP_ERR_FORMAT, "the agent sent a packet that is too long", err);
    if ((size_t)n < sizeof packet->header || packet->header.magic != FSDP_LINK_MAGIC)
        return link_break(link, FSDP_ERR_FORMAT, "the agent sent a packet that is not of the link's protocol",
                          err);
    if (packet->header.version != FSDP_LINK_VERSION) {
        char words[128];

        snprintf(words, sizeof words,
                 "the agent speaks version %d of the link's protocol, this library version %d",
                 packet->header.version, FSDP_LINK_VERSION);
        return link_break(link, FSDP_ERR_FORMAT, words, err);
    }
    if (packet->header.size != (size_t)n - sizeof packet->header)
        return link_break(link, FSDP_ERR_FORMAT, "the agent sent a packet whose size is not what it says",
                          err);
    *got = true;
    return FSDP_OK;
}

void link_wait_briefly(const struct link *link)
{
    struct pollfd p = { .fd = link->fd, .events = POLLIN };

    poll(&p, 1, ABORT_SLICE_MS);
}

enum fsdp_status link_send(struct link *link, enum fsdp_link_type type, uint32_t tag, const void *head,
                           size_t head_bytes, const void *body, size_t body_bytes, int fd,
                           struct fsdp_err *err)
{
    struct fsdp_link_header header = { .magic = FSDP_LINK_MAGIC,
                                       .version = FSDP_LINK_VERSION,
                                       .type = (uint16_t)type,
                                       .tag = tag,
                                       .size = (uint32_t)(head_bytes + body_bytes) };
    const struct iovec parts[3] = { { &header, sizeof header },
                                    { (void *)head, head_bytes },
                                    { (void *)body, body_bytes } };

    OK_OR_RETURN(say_broken(link, err));
    for (;;) {
        struct pollfd p = { .fd = link->fd, .events = POLLOUT };

        if (message_send(link->fd, parts, 3, &fd, fd >= 0) >= 0)
            return FSDP_OK;
        if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
            return agent_gone(link, err);
        if (errno == EBADF && fd >= 0)
            return fsdp_fail(err, FSDP_ERR_ARG, "the descriptor to send along is not open");
        if (errno != EAGAIN)
            return link_break(link, FSDP_ERR_IO, strerror(errno), err);
        poll(&p, 1, ABORT_SLICE_MS);
    }
}

static enum fsdp_status keep(struct link *link, struct fsdp_err *err)
{
    const struct packet *packet = link->packet;
    struct kept *kept = calloc(1, sizeof *kept), **end;

    if (kept == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "keeping a packet of the agent");
    kept->type = packet->header.type;
    if (kept->type == FSDP_LINK_NOTICE)
        memcpy(&kept->notice, packet->payload, sizeof kept->notice);
    else
        memcpy(&kept->published, packet->payload, sizeof kept->published);
    pthread_mutex_lock(&link->state);
    for (end = &link->kept; *end != NULL;)
        end = &(*end)->next;
    *end = kept;
    pthread_mutex_unlock(&link->state);
    return FSDP_OK;
}

static enum fsdp_status read_job(struct link *link, struct fsdp_err *err)
{
    const int fd = link->packet->fd;
    enum fsdp_status status;
    size_t length;
    char *text;

    if (fd < 0 || link->job != NULL || link->packet->header.size != 0)
        return link_break(link, FSDP_ERR_FORMAT, "the agent sent a job packet that is not one", err);
    status = file_read(fd, JOB_BYTES_MAX + 1, &text, &length);
    if (status == FSDP_ERR_NOMEM)
        return fsdp_fail(err, status, "no memory for the job");
    if (status != FSDP_OK || length > JOB_BYTES_MAX) {
        free(text);
        return link_break(link, FSDP_ERR_FORMAT, "the agent sent a job that is no file of a sensible size",
                          err);
    }
    link->job = text;
    link->job_length = length;
    return FSDP_OK;
}

enum fsdp_status link_absorb(struct link *link, struct fsdp_err *err)
{
    const struct packet *packet = link->packet;
    enum fsdp_status status;

    switch (packet->header.type) {
    case FSDP_LINK_VALUE:
        return FSDP_OK; /* an answer to a link_get() that has failed in the meantime */
    case FSDP_LINK_JOB:
        return read_job(link, err);
    case FSDP_LINK_NOTICE:
        if (packet->header.size != sizeof(struct fsdp_link_notice))
            return link_break(link, FSDP_ERR_FORMAT, "the agent sent a notice of a wrong size", err);
        status = keep(link, err);
        if (status == FSDP_OK &&
            ((const struct fsdp_link_notice *)packet->payload)->kind == FSDP_NOTICE_ABORT)
            return link_break(link, FSDP_ERR_PEER, "another rank is gone, says the agent", err);
        return status;
    case FSDP_LINK_PUBLISHED:
        if (packet->header.size != sizeof(struct fsdp_link_published))
            return link_break(link, FSDP_ERR_FORMAT, "the agent sent a verdict of a wrong size", err);
        return keep(link, err);
    default:
        return link_break(link, FSDP_ERR_FORMAT, "the agent sent a packet of a kind that workers do not get",
                          err);
    }
}

enum fsdp_status link_check_abort_word(struct link *link, struct fsdp_err *err)
{
    if (atomic_load_explicit(&link->progress->abort_word, memory_order_relaxed) == 0)
        return FSDP_OK;
    return link_break(link, FSDP_ERR_PEER, "another rank is gone, says the agent", err);
}

enum fsdp_status link_drain(struct link *link, struct fsdp_err *err)
{
    bool got;

    do {
        OK_OR_RETURN(link_receive(link, &got, err));
        if (got)
            OK_OR_RETURN(link_absorb(link, err));
    } while (got);
    return FSDP_OK;
}

/* If another thread is receiving, leaves that to it: it takes packets for this thread too. */
static enum fsdp_status drain_or_leave(struct link *link, struct fsdp_err *err)
{
    enum fsdp_status status;

    if (pthread_mutex_trylock(&link->receiving) != 0)
        return say_broken(link, err);
    status = link_drain(link, err);
    pthread_mutex_unlock(&link->receiving);
    return status;
}

enum fsdp_status link_check(struct link *link, struct fsdp_err *err)
{
    if (link->fd < 0)
        return FSDP_OK;
    OK_OR_RETURN(drain_or_leave(link, err));
    return link_check_abort_word(link, err);
}

bool link_take_kept(struct link *link, enum fsdp_link_type type, int64_t step, struct kept *out)
{
    struct kept **at, *found;

    pthread_mutex_lock(&link->state);
    for (at = &link->kept; *at != NULL; at = &(*at)->next)
        if ((*at)->type == type && (type != FSDP_LINK_PUBLISHED || (*at)->published.step == step))
            break;
    found = *at;
    if (found != NULL) {
        *out = *found;
        *at = found->next;
    }
    pthread_mutex_unlock(&link->state);
    free(found);
    return found != NULL;
}

bool link_poll_notice(struct link *link, struct fsdp_link_notice *notice)
{
    struct kept kept;

    if (link->fd >= 0)
        (void)drain_or_leave(link, NULL);
    if (!link_take_kept(link, FSDP_LINK_NOTICE, 0, &kept))
        return false;
    *notice = kept.notice;
    return true;
}
