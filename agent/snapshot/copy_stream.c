#include "agent/snapshot/copy_stream.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"

enum { PIECE_BYTES = 256 << 10, BUFFER_BYTES = 64 << 10 };

struct copy_stream {
    int fd;
    struct tls *tls;
    int64_t end_ns;                     /* deadline of the handshake; INT64_MAX: the handshake is done */
    unsigned char buffer[BUFFER_BYTES]; /* ciphertext, within a call */
};

/* Waits for `events` on the socket, until `until_ns` at most. */
static enum fsdp_status wait_until(int fd, short events, int64_t until_ns, struct fsdp_err *err)
{
    struct pollfd wait = { .fd = fd, .events = events };

    for (;;) {
        const int64_t left_ms = (until_ns - clock_now_ns()) / 1000000;
        const int n = left_ms <= 0 ? 0 : poll(&wait, 1, (int)left_ms);

        if (n > 0)
            return FSDP_OK;
        if (n == 0)
            return fsdp_fail(err, FSDP_ERR_PEER, "no answer in time");
        if (errno != EINTR)
            return fsdp_fail(err, FSDP_ERR_IO, "poll: %s", strerror(errno));
    }
}

static int64_t ns_from_now(int ms)
{
    return clock_now_ns() + ms * INT64_C(1000000);
}

/* Until when a call may wait. */
static int64_t end_of_patience(const struct copy_stream *stream)
{
    const int64_t end_ns = ns_from_now(COPY_PATIENCE_MS);

    return end_ns < stream->end_ns ? end_ns : stream->end_ns;
}

static enum fsdp_status connect_to(int *fd, const struct addrinfo *to, struct fsdp_err *err)
{
    const int one = 1;
    socklen_t length = sizeof(int);
    int error = 0;

    *fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "socket: %s", strerror(errno));
    (void)setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(*fd, to->ai_addr, to->ai_addrlen) == 0)
        return FSDP_OK;
    if (errno != EINPROGRESS)
        return fsdp_fail(err, FSDP_ERR_PEER, "connect: %s", strerror(errno));
    OK_OR_RETURN(wait_until(*fd, POLLOUT, ns_from_now(COPY_PATIENCE_MS), err));
    if (getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 || error != 0)
        return fsdp_fail(err, FSDP_ERR_PEER, "connect: %s", strerror(error));
    return FSDP_OK;
}

enum fsdp_status copy_stream_connect(int *fd, const char *address, int port, struct fsdp_err *err)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    enum fsdp_status status = FSDP_ERR_PEER;
    struct addrinfo *list;
    char service[16];
    int failed;

    *fd = -1;
    snprintf(service, sizeof service, "%d", port);
    failed = getaddrinfo(address, service, &hints, &list);
    if (failed != 0)
        return fsdp_fail(err, FSDP_ERR_PEER, "%s: %s", address, gai_strerror(failed));
    for (const struct addrinfo *to = list; to != NULL && *fd < 0; to = to->ai_next) {
        fsdp_err_clear(err);
        status = connect_to(fd, to, err);
        if (status != FSDP_OK && *fd >= 0) {
            close(*fd);
            *fd = -1;
        }
    }
    freeaddrinfo(list);
    if (status != FSDP_OK)
        fsdp_wrap(err, "%s port %d", address, port);
    return status;
}

/* Sends what TLS has to send. */
static enum fsdp_status flush(struct copy_stream *stream, struct fsdp_err *err)
{
    const int64_t until_ns = end_of_patience(stream);
    size_t n, sent;

    while ((n = tls_take(stream->tls, stream->buffer, sizeof stream->buffer)) > 0)
        for (sent = 0; sent < n;) {
            const ssize_t m = send(stream->fd, stream->buffer + sent, n - sent, MSG_NOSIGNAL);

            if (m >= 0)
                sent += (size_t)m;
            else if (errno == EAGAIN || errno == EWOULDBLOCK)
                OK_OR_RETURN(wait_until(stream->fd, POLLOUT, until_ns, err));
            else if (errno != EINTR)
                return fsdp_fail(err, FSDP_ERR_PEER, "send: %s", strerror(errno));
        }
    return FSDP_OK;
}

/* Waits for bytes, and gives them to TLS. */
static enum fsdp_status feed(struct copy_stream *stream, struct fsdp_err *err)
{
    const int64_t until_ns = end_of_patience(stream);

    for (;;) {
        const ssize_t n = recv(stream->fd, stream->buffer, sizeof stream->buffer, 0);

        if (n > 0)
            return tls_feed(stream->tls, stream->buffer, (size_t)n, err);
        if (n == 0)
            return fsdp_fail(err, FSDP_ERR_PEER, "the other node closed the connection");
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            OK_OR_RETURN(wait_until(stream->fd, POLLIN, until_ns, err));
        else if (errno != EINTR)
            return fsdp_fail(err, FSDP_ERR_PEER, "recv: %s", strerror(errno));
    }
}

static enum fsdp_status shake_hands(struct copy_stream *stream, bool server, struct fsdp_err *err)
{
    enum fsdp_status status = server ? FSDP_OK : tls_start(stream->tls, err);

    while (status == FSDP_OK && !tls_established(stream->tls)) {
        status = flush(stream, err);
        if (status == FSDP_OK)
            status = feed(stream, err);
        if (status == FSDP_ERR_MISMATCH)
            (void)flush(stream, NULL); /* the other end learns why */
    }
    return status == FSDP_OK ? flush(stream, err) : status;
}

enum fsdp_status copy_stream_open(struct copy_stream **out, int fd, const struct tls_context *context,
                                  bool server, int patience_ms, struct fsdp_err *err)
{
    struct copy_stream *stream = malloc(sizeof *stream);
    enum fsdp_status status;

    *out = NULL;
    if (stream == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    stream->fd = fd;
    stream->end_ns = ns_from_now(patience_ms);
    status = tls_create(&stream->tls, context, NULL, err);
    if (status == FSDP_OK)
        status = shake_hands(stream, server, err);
    if (status != FSDP_OK) {
        tls_destroy(stream->tls);
        free(stream);
        return status;
    }
    stream->end_ns = INT64_MAX;
    *out = stream;
    return FSDP_OK;
}

void copy_stream_close(struct copy_stream *stream)
{
    if (stream == NULL)
        return;
    tls_destroy(stream->tls);
    close(stream->fd);
    free(stream);
}

enum fsdp_status copy_stream_send(struct copy_stream *stream, const void *bytes, size_t n_bytes,
                                  struct fsdp_err *err)
{
    const unsigned char *from = bytes;

    while (n_bytes > 0) {
        const size_t n = n_bytes < PIECE_BYTES ? n_bytes : PIECE_BYTES;

        OK_OR_RETURN(tls_write(stream->tls, from, n, err));
        OK_OR_RETURN(flush(stream, err));
        from += n;
        n_bytes -= n;
    }
    return FSDP_OK;
}

enum fsdp_status copy_stream_receive(struct copy_stream *stream, void *bytes, size_t n_bytes,
                                     struct fsdp_err *err)
{
    unsigned char *to = bytes;

    while (n_bytes > 0) {
        size_t n;

        OK_OR_RETURN(tls_read(stream->tls, to, n_bytes, &n, err));
        if (n == 0)
            OK_OR_RETURN(feed(stream, err));
        to += n;
        n_bytes -= n;
    }
    return FSDP_OK;
}

void copy_stream_idle(struct copy_stream *stream)
{
    struct pollfd wait = { .fd = stream->fd, .events = POLLIN };

    if (tls_incoming(stream->tls) > 0)
        return;
    while (poll(&wait, 1, -1) < 0 && errno == EINTR)
        ;
}
