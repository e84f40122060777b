#include "agent/rendezvous/pulse_listener.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/wire/tls.h"

enum { MOST_AT_ONCE = 4096, CONTROL_BYTES = 128 };

struct pulse_listener {
    uv_poll_t poll;
    int fd;
    unsigned char key[TLS_KEY_BYTES];
    bool keyed;
    pulse_question *question;
    void *arg;
};

/*
 * A datagram, and what its answer needs: who sent it, and at which of this host's addresses it came. The
 * member takes an answer only from the address that it asks.
 */
struct letter {
    unsigned char bytes[PULSE_BYTES + 1];
    struct sockaddr_storage from;
    _Alignas(struct cmsghdr) unsigned char control[CONTROL_BYTES];
    struct iovec part;
    struct msghdr head;
};

static void answer(const struct pulse_listener *listener, struct letter *letter, size_t n_bytes)
{
    const unsigned char *key = listener->keyed ? listener->key : NULL;
    struct pulse question, out;

    if (!pulse_decode(&question, letter->bytes, n_bytes, key) || question.is_answer)
        return;
    out = question;
    out.is_answer = true;
    if (!listener->question(listener->arg, &question, &out) || !pulse_encode(letter->bytes, &out, key))
        return;
    letter->part.iov_len = PULSE_BYTES;
    (void)sendmsg(listener->fd, &letter->head, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    const struct pulse_listener *listener = poll->data;
    struct letter letter;

    (void)status, (void)events;
    for (int i = 0; i < MOST_AT_ONCE; i++) {
        ssize_t n;

        letter.part = (struct iovec){ letter.bytes, sizeof letter.bytes };
        letter.head = (struct msghdr){ .msg_name = &letter.from,
                                       .msg_namelen = sizeof letter.from,
                                       .msg_iov = &letter.part,
                                       .msg_iovlen = 1,
                                       .msg_control = letter.control,
                                       .msg_controllen = sizeof letter.control };
        n = recvmsg(listener->fd, &letter.head, MSG_DONTWAIT);
        if (n < 0)
            return;
        answer(listener, &letter, (size_t)n);
    }
}

static int open_socket(const struct sockaddr *address)
{
    const bool v6 = address->sa_family == AF_INET6;
    const int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;

    if (fd < 0)
        return -1;
    if (setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVPKTINFO : IP_PKTINFO, &on, sizeof on) ==
            0 &&
        bind(fd, address, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)) == 0)
        return fd;
    close(fd);
    return -1;
}

struct pulse_listener *pulse_listen(uv_loop_t *loop, const struct sockaddr *address, const unsigned char *key,
                                    pulse_question *question, void *arg)
{
    struct pulse_listener *listener = calloc(1, sizeof *listener);

    if (listener == NULL)
        return NULL;
    listener->keyed = key != NULL;
    listener->question = question;
    listener->arg = arg;
    listener->fd = -1;
    if (key == NULL || pulse_derive_key(listener->key, key, NULL) == FSDP_OK)
        listener->fd = open_socket(address);
    if (listener->fd < 0) {
        free(listener);
        return NULL;
    }
    uv_poll_init(loop, &listener->poll, listener->fd);
    listener->poll.data = listener;
    uv_poll_start(&listener->poll, UV_READABLE, on_readable);
    return listener;
}

static void on_closed(uv_handle_t *handle)
{
    struct pulse_listener *listener = handle->data;

    close(listener->fd);
    explicit_bzero(listener->key, sizeof listener->key);
    free(listener);
}

void pulse_listener_close(struct pulse_listener *listener)
{
    if (listener != NULL)
        uv_close((uv_handle_t *)&listener->poll, on_closed);
}
