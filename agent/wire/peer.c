#include "agent/wire/peer.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "agent/wire/peer_impl.h"
#include "shard_runtime/core/require.h"

enum {
    QUEUE_MAX_BYTES = 64 * 1024 * 1024,
    /* so many bytes of a frame are encrypted at once; TLS adds some bytes to each of its records */
    PIECE_BYTES = PEER_SCRATCH_BYTES - 1024,
    CLOSE_MS = 500, /* how long the queued bytes of a connection have to be sent when it is closed */
    TICKS = 8       /* looks at the clock in the time that a peer has until peer_admit() */
};

struct outgoing {
    uv_write_t request;
    unsigned char bytes[];
};

void peer_config_init(struct peer_config *config)
{
    *config = (struct peer_config){ .handshake_ms = 5000, .unsent_ms = 3000 };
}

/* Closing a connection */

static void on_closed(uv_handle_t *handle)
{
    struct peer *peer = handle->data;
    struct peer_listener *listener = peer->listener;

    if (--peer->n_open > 0)
        return;
    peer_listener_proven(peer);
    if (peer->config.handlers.closed != NULL)
        peer->config.handlers.closed(peer->config.arg, peer, &peer->why);
    tls_destroy(peer->tls);
    frame_parser_fini(&peer->parser);
    free(peer);
    if (listener != NULL)
        peer_listener_forget(listener);
}

static void close_handles(struct peer *peer)
{
    if (!uv_is_closing((uv_handle_t *)&peer->tcp))
        uv_close((uv_handle_t *)&peer->tcp, on_closed);
    if (!uv_is_closing((uv_handle_t *)&peer->timer))
        uv_close((uv_handle_t *)&peer->timer, on_closed);
}

void peer_fail(struct peer *peer, enum fsdp_status status, const char *words)
{
    struct fsdp_err why = { 0 };

    fsdp_fail(&why, status, "%s", words);
    peer_close(peer, &why);
}

/* The socket has failed: the other end or the network has ended the connection, as `words` say. */
static void take_end(struct peer *peer, const char *words)
{
    peer->left = peer->left || !peer->closing;
    peer_fail(peer, FSDP_ERR_PEER, words);
}

/* Sending frames */

static void on_written(uv_write_t *request, int status)
{
    struct peer *peer = request->handle->data;

    free(request->data);
    if (status < 0 && status != UV_ECANCELED)
        take_end(peer, uv_strerror(status));
    else if (peer->closing && peer_queued(peer) == 0)
        close_handles(peer);
    else if (!peer->closing && peer->config.handlers.sent != NULL)
        peer->config.handlers.sent(peer->config.arg, peer);
}

/* Queues a copy of the bytes that the socket does not take now. */
static void queue_bytes(struct peer *peer, const unsigned char *bytes, size_t size)
{
    struct outgoing *out = malloc(sizeof *out + size);
    uv_buf_t buf;
    int status;

    if (out == NULL) {
        peer_fail(peer, FSDP_ERR_NOMEM, "no memory to send");
        close_handles(peer); /* nothing may follow what is missing */
        return;
    }
    memcpy(out->bytes, bytes, size);
    out->request.data = out;
    buf = uv_buf_init((char *)out->bytes, (unsigned)size);
    status = uv_write(&out->request, (uv_stream_t *)&peer->tcp, &buf, 1, on_written);
    if (status < 0) {
        free(out);
        take_end(peer, uv_strerror(status));
        return;
    }
    if (peer_queued(peer) > QUEUE_MAX_BYTES)
        peer_fail(peer, FSDP_ERR_PEER, "does not take what is sent to it");
}

/*
 * Sends bytes after those that are queued. Most frames go to the kernel at once, without a libuv request: its
 * end would cost the loop one more callback and one more epoll_ctl(2).
 */
static void send_bytes(struct peer *peer, unsigned char *bytes, size_t size)
{
    const uv_buf_t buf = uv_buf_init((char *)bytes, (unsigned)size);
    const int n = uv_try_write((uv_stream_t *)&peer->tcp, &buf, 1);
    const size_t n_sent = n > 0 ? (size_t)n : 0;

    if (n < 0 && n != UV_EAGAIN)
        take_end(peer, uv_strerror(n));
    else if (n_sent < size)
        queue_bytes(peer, bytes + n_sent, size - n_sent);
}

/* Sends the ciphertext that TLS has produced. */
static void flush_tls(struct peer *peer)
{
    unsigned char *scratch = peer->config.scratch;
    size_t size = peer->tls == NULL ? 0 : PEER_SCRATCH_BYTES;

    while (size == PEER_SCRATCH_BYTES && !uv_is_closing((uv_handle_t *)&peer->tcp)) {
        size = tls_take(peer->tls, scratch, PEER_SCRATCH_BYTES);
        if (size > 0)
            send_bytes(peer, scratch, size);
    }
}

size_t peer_queued(const struct peer *peer)
{
    return uv_stream_get_write_queue_size((const uv_stream_t *)&peer->tcp);
}

/* Sends plaintext that is in the scratch. */
static void send_plain(struct peer *peer, size_t size)
{
    struct fsdp_err err = { 0 };

    if (peer->tls == NULL)
        send_bytes(peer, peer->config.scratch, size);
    else if (tls_write(peer->tls, peer->config.scratch, size, &err) != FSDP_OK)
        peer_close(peer, &err);
    else
        flush_tls(peer);
}

void peer_send(struct peer *peer, const struct frame *frame)
{
    unsigned char *scratch = peer->config.scratch;
    struct frame sent = *frame;
    size_t n_head = FRAME_HEAD_BYTES, n_taken = 0;

    sent.job = peer->config.job;
    frame_write_head(scratch, &sent);
    while (!peer->closing && peer->opened && (n_head > 0 || n_taken < sent.size)) {
        const size_t left = sent.size - n_taken, room = PIECE_BYTES - n_head, n = left < room ? left : room;

        if (n > 0)
            memcpy(scratch + n_head, (const unsigned char *)sent.payload + n_taken, n);
        send_plain(peer, n_head + n);
        n_head = 0;
        n_taken += n;
    }
}

/* Limits of time */

/*
 * Counts the time that a peer has until peer_admit(). A late tick does not count: then the loop was blocked,
 * and the peer's bytes may be waiting, because libuv runs timers before it reads.
 */
static void on_tick(uv_timer_t *timer)
{
    struct peer *peer = timer->data;
    const uint64_t now = uv_now(timer->loop);
    const bool late = now - peer->ticked_ms >= 2 * uv_timer_get_repeat(timer);

    peer->ticked_ms = now;
    if (!late && ++peer->n_ticks == TICKS)
        peer_fail(peer, FSDP_ERR_PEER,
                  peer->opened ? "did not say who it is in time" : "no handshake in time");
}

static void start_ticks(struct peer *peer)
{
    const int64_t tick_ms = peer->config.handshake_ms / TICKS + 1;

    peer->ticked_ms = uv_now(peer->timer.loop);
    uv_timer_start(&peer->timer, on_tick, (uint64_t)tick_ms, (uint64_t)tick_ms);
}

/* The queued bytes could not be sent in time, and are dropped. */
static void on_close_late(uv_timer_t *timer)
{
    close_handles(timer->data);
}

void peer_close(struct peer *peer, const struct fsdp_err *why)
{
    const bool failed = why != NULL && why->status != FSDP_OK;

    if (peer->closing) {
        if (failed)
            close_handles(peer); /* the last frame cannot be sent: do not wait for it */
        return;
    }
    peer->closing = true;
    if (why != NULL)
        peer->why = *why;
    /* A TLS alert or a last frame gets one chance to be sent; the timer limits how long. */
    if (peer_queued(peer) == 0 || (failed && !peer->opened && peer->tls == NULL))
        close_handles(peer);
    else
        uv_timer_start(&peer->timer, on_close_late, CLOSE_MS, 0);
}

void peer_reset(struct peer *peer)
{
    peer->closing = true;
    if (!uv_is_closing((uv_handle_t *)&peer->tcp) && uv_tcp_close_reset(&peer->tcp, on_closed) < 0)
        uv_close((uv_handle_t *)&peer->tcp, on_closed);
    close_handles(peer);
}

/* Receiving frames */

static void mark_opened(struct peer *peer)
{
    if (peer->opened)
        return;
    peer->opened = true;
    if (peer->config.handlers.opened != NULL)
        peer->config.handlers.opened(peer->config.arg, peer);
}

static void handle_frames(struct peer *peer)
{
    struct fsdp_err err = { 0 };
    struct frame frame;

    while (!peer->closing) {
        if (frame_parser_next(&peer->parser, &frame, &err) != FSDP_OK) {
            peer_close(peer, &err);
            return;
        }
        if (frame.payload == NULL)
            return;
        if (frame.job != peer->config.job) {
            /* an empty frame with our job's number, from which the other side sees the mismatch too */
            peer_send(peer, &(struct frame){ 0 });
            peer_fail(peer, FSDP_ERR_MISMATCH,
                      "belongs to another job (is --rdzv-id the same on every node?)");
            return;
        }
        if (peer->config.handlers.frame != NULL)
            peer->config.handlers.frame(peer->config.arg, peer, &frame);
    }
}

static enum fsdp_status take_plaintext(struct peer *peer, struct fsdp_err *err)
{
    size_t n;

    do {
        OK_OR_RETURN(tls_read(peer->tls, peer->config.scratch, PEER_SCRATCH_BYTES, &n, err));
        OK_OR_RETURN(frame_parser_feed(&peer->parser, peer->config.scratch, n, err));
        if (n > 0)
            handle_frames(peer);
    } while (n > 0 && !peer->closing && tls_incoming(peer->tls) > 0);
    return FSDP_OK;
}

static void take_bytes(struct peer *peer, const void *bytes, size_t n_bytes)
{
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    peer->n_received += n_bytes;
    if (peer->tls == NULL) {
        status = frame_parser_feed(&peer->parser, bytes, n_bytes, &err);
        if (status == FSDP_OK)
            handle_frames(peer);
    } else {
        status = tls_feed(peer->tls, bytes, n_bytes, &err);
        flush_tls(peer);
        if (status == FSDP_OK && tls_established(peer->tls) && !peer->closing) {
            mark_opened(peer);
            if (!peer->closing)
                status = take_plaintext(peer, &err);
        }
    }
    if (status != FSDP_OK && !peer->closing)
        peer_close(peer, &err);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct peer *peer = handle->data;

    (void)suggested;
    *buf = uv_buf_init((char *)peer->config.scratch, PEER_SCRATCH_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf)
{
    struct peer *peer = stream->data;

    if (n_read > 0 && !peer->closing)
        take_bytes(peer, buf->base, (size_t)n_read);
    else if (n_read == UV_EOF) {
        peer->ended = true;
        take_end(peer, "closed the connection");
    } else if (n_read < 0)
        take_end(peer, uv_strerror((int)n_read));
}

/* Opening a connection */

/*
 * Begins to use a connection that is open. TCP gets time-outs for a silent connection, and TLS begins its
 * handshake.
 */
void peer_begin(struct peer *peer)
{
    const unsigned user_timeout_ms = (unsigned)peer->config.unsent_ms;
    struct fsdp_err err = { 0 };
    uv_os_fd_t fd;
    int status;

    peer->connected = true;
    peer_find_name(peer);
    uv_tcp_nodelay(&peer->tcp, 1);
    uv_tcp_keepalive(&peer->tcp, 1, 1);
    if (uv_fileno((uv_handle_t *)&peer->tcp, &fd) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof user_timeout_ms);
    status = uv_read_start((uv_stream_t *)&peer->tcp, on_alloc, on_read);
    if (status < 0) {
        peer_fail(peer, FSDP_ERR_PEER, uv_strerror(status));
        return;
    }
    if (peer->tls == NULL) {
        mark_opened(peer);
        return;
    }
    if (peer->listener == NULL && tls_start(peer->tls, &err) != FSDP_OK)
        peer_close(peer, &err);
    else
        flush_tls(peer);
}

static void on_connected(uv_connect_t *request, int status)
{
    struct peer *peer = request->handle->data;

    if (peer->closing)
        return;
    if (status < 0)
        peer_fail(peer, status == UV_ECONNREFUSED ? FSDP_ERR_NOT_FOUND : FSDP_ERR_PEER, uv_strerror(status));
    else
        peer_begin(peer);
}

struct peer *peer_create(uv_loop_t *loop, const struct peer_config *config, struct peer_listener *listener,
                         struct fsdp_err *err)
{
    struct peer *peer = calloc(1, sizeof *peer);

    if (peer == NULL) {
        fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a connection");
        return NULL;
    }
    peer->config = *config;
    if (config->tls != NULL && tls_create(&peer->tls, config->tls, config->identity, err) != FSDP_OK) {
        free(peer);
        return NULL;
    }
    peer->config.tls = NULL; /* only borrowed from the caller, who may destroy it */
    peer->config.identity = NULL;
    peer->listener = listener;
    snprintf(peer->name, sizeof peer->name, "?");
    frame_parser_init(&peer->parser, FRAME_FIRST_MAX_BYTES);
    uv_tcp_init(loop, &peer->tcp);
    uv_timer_init(loop, &peer->timer);
    peer->tcp.data = peer->timer.data = peer;
    peer->n_open = 2;
    start_ticks(peer);
    return peer;
}

enum fsdp_status peer_connect(struct peer **out, uv_loop_t *loop, const struct sockaddr *address,
                              const struct peer_config *config, struct fsdp_err *err)
{
    struct peer *peer;
    int status;

    *out = peer = peer_create(loop, config, NULL, err);
    if (peer == NULL)
        return FSDP_ERR_NOMEM;
    status = uv_tcp_connect(&peer->connecting, &peer->tcp, address, on_connected);
    if (status < 0)
        /* closed() reports this later, as it does for a refused connection */
        peer_fail(peer, FSDP_ERR_PEER, uv_strerror(status));
    return FSDP_OK;
}

void peer_admit(struct peer *peer)
{
    if (peer->admitted)
        return;
    peer->admitted = true;
    if (!peer->closing)
        uv_timer_stop(&peer->timer);
    peer_listener_proven(peer);
    frame_parser_limit(&peer->parser, FRAME_MAX_BYTES);
}

/* Properties of a connection */

void peer_set_data(struct peer *peer, void *data)
{
    peer->data = data;
}

void *peer_data(const struct peer *peer)
{
    return peer->data;
}

const unsigned char *peer_identity(const struct peer *peer)
{
    return peer->tls != NULL && peer->listener != NULL ? tls_identity(peer->tls) : NULL;
}

uint64_t peer_received(const struct peer *peer)
{
    return peer->n_received;
}

size_t peer_unacknowledged(const struct peer *peer)
{
    int n_bytes = 0;
    uv_os_fd_t fd;

    if (uv_fileno((const uv_handle_t *)&peer->tcp, &fd) == 0)
        ioctl(fd, SIOCOUTQ, &n_bytes); /* tcp(7) */
    return peer_queued(peer) + (size_t)(n_bytes > 0 ? n_bytes : 0);
}

bool peer_connected(const struct peer *peer)
{
    return peer->connected;
}

bool peer_ended(const struct peer *peer)
{
    return peer->ended;
}

bool peer_left(const struct peer *peer)
{
    return peer->left;
}

const char *peer_name(const struct peer *peer)
{
    return peer->name;
}
