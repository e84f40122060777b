#include "agent/wire/peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/wire/peer_impl.h"

enum { QUEUE_MAX_BYTES = 64 * 1024 * 1024 };

struct outgoing {
    uv_write_t request;
    size_t size;
    unsigned char bytes[];
};

void peer_config_init(struct peer_config *config)
{
    *config = (struct peer_config){ .handshake_ms = 5000, .beat_ms = 500, .lost_ms = 3000 };
}

/* --- closing ----------------------------------------------------------------------------------------------------- */

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

/* --- sending ----------------------------------------------------------------------------------------------------- */

static void on_written(uv_write_t *request, int status)
{
    struct peer *peer = request->handle->data;

    free(request->data);
    if (status < 0 && status != UV_ECANCELED)
        peer_fail(peer, FSDP_ERR_PEER, uv_strerror(status));
    else if (peer->closing && uv_stream_get_write_queue_size((uv_stream_t *)&peer->tcp) == 0)
        close_handles(peer);
}

/* Hand a block of malloc'ed memory to the socket. */
static void write_block(struct peer *peer, struct outgoing *out)
{
    uv_buf_t buf = uv_buf_init((char *)out->bytes, (unsigned)out->size);
    int status;

    out->request.data = out;
    status = uv_write(&out->request, (uv_stream_t *)&peer->tcp, &buf, 1, on_written);
    if (status < 0) {
        free(out);
        peer_fail(peer, FSDP_ERR_PEER, uv_strerror(status));
        return;
    }
    if (uv_stream_get_write_queue_size((uv_stream_t *)&peer->tcp) > QUEUE_MAX_BYTES)
        peer_fail(peer, FSDP_ERR_PEER, "does not take what is sent to it");
}

static struct outgoing *make_block(size_t size)
{
    struct outgoing *out = malloc(sizeof *out + size);

    if (out != NULL)
        out->size = size;
    return out;
}

/* Send the ciphertext that TLS has ready. */
static void flush_tls(struct peer *peer)
{
    const size_t size = peer->tls == NULL ? 0 : tls_outgoing(peer->tls);
    struct outgoing *out;

    if (size == 0 || uv_is_closing((uv_handle_t *)&peer->tcp))
        return;
    out = make_block(size);
    if (out == NULL) {
        peer_fail(peer, FSDP_ERR_NOMEM, "no memory to send");
        return;
    }
    out->size = tls_take(peer->tls, out->bytes, size);
    write_block(peer, out);
}

void peer_send(struct peer *peer, uint16_t type, uint32_t generation, const void *payload, size_t size_bytes)
{
    const struct frame frame = {
        .type = type, .generation = generation, .job = peer->config.job, .size = (uint32_t)size_bytes
    };
    struct outgoing *out;
    struct fsdp_err err = { 0 };

    if (peer->closing || !peer->opened)
        return;
    out = make_block(FRAME_HEAD_BYTES + size_bytes);
    if (out == NULL || size_bytes > FRAME_MAX_BYTES) {
        free(out);
        peer_fail(peer, FSDP_ERR_NOMEM, "a frame that cannot be sent");
        return;
    }
    frame_write_head(out->bytes, &frame);
    if (size_bytes > 0)
        memcpy(out->bytes + FRAME_HEAD_BYTES, payload, size_bytes);
    if (peer->tls == NULL) {
        write_block(peer, out);
        return;
    }
    if (tls_write(peer->tls, out->bytes, out->size, &err) != FSDP_OK)
        peer_close(peer, &err);
    else
        flush_tls(peer);
    free(out);
}

/* --- signs of life ----------------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    struct peer *peer = timer->data;
    const uint64_t now = uv_now(timer->loop);
    char words[96];

    if (peer->closing) {
        /* What was queued could not be sent in time: it is given up. */
        close_handles(peer);
        return;
    }
    if (!peer->admitted && now - peer->born_ms >= (uint64_t)peer->config.handshake_ms) {
        peer_fail(peer, FSDP_ERR_PEER,
                  peer->opened ? "did not say who it is in time" : "no handshake in time");
        return;
    }
    if (peer->opened && now - peer->heard_ms >= (uint64_t)peer->config.lost_ms) {
        snprintf(words, sizeof words, "no sign of life for %.1f s", (double)(now - peer->heard_ms) / 1000.0);
        peer_fail(peer, FSDP_ERR_PEER, words);
        return;
    }
    if (peer->opened)
        peer_send(peer, PEER_BEAT_FRAME, 0, NULL, 0);
}

void peer_close(struct peer *peer, const struct fsdp_err *why)
{
    const bool failed = why != NULL && why->status != FSDP_OK;

    if (peer->closing) {
        if (failed)
            close_handles(peer); /* the farewell cannot be sent: do not wait for it */
        return;
    }
    peer->closing = true;
    if (why != NULL)
        peer->why = *why;
    /* An alert or a last frame is worth one attempt; the timer gives it up after a beat. */
    if (uv_stream_get_write_queue_size((uv_stream_t *)&peer->tcp) == 0 ||
        (failed && !peer->opened && peer->tls == NULL))
        close_handles(peer);
    else
        uv_timer_start(&peer->timer, on_timer, (uint64_t)peer->config.beat_ms,
                       (uint64_t)peer->config.beat_ms);
}

/* --- receiving --------------------------------------------------------------------------------------------------- */

static void mark_opened(struct peer *peer)
{
    if (peer->opened)
        return;
    peer->opened = true;
    peer->heard_ms = uv_now(peer->tcp.loop);
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
            peer_send(peer, PEER_BEAT_FRAME, 0, NULL,
                      0); /* with our number in it: so that it sees that, too */
            peer_fail(peer, FSDP_ERR_MISMATCH,
                      "belongs to another job (is --rdzv-id the same on every node?)");
            return;
        }
        if (frame.type != PEER_BEAT_FRAME && peer->config.handlers.frame != NULL)
            peer->config.handlers.frame(peer->config.arg, peer, &frame);
    }
}

static enum fsdp_status take_plaintext(struct peer *peer, struct fsdp_err *err)
{
    unsigned char plain[16384];
    enum fsdp_status status;
    size_t n;

    do {
        status = tls_read(peer->tls, plain, sizeof plain, &n, err);
        if (status == FSDP_OK)
            status = frame_parser_feed(&peer->parser, plain, n, err);
        if (status == FSDP_OK && n > 0)
            handle_frames(peer);
    } while (status == FSDP_OK && n > 0 && !peer->closing);
    return status;
}

static void take_bytes(struct peer *peer, const void *bytes, size_t n_bytes)
{
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    peer->heard_ms = uv_now(peer->tcp.loop);
    peer->spoke = true;
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
    *buf = uv_buf_init((char *)peer->buffer, sizeof peer->buffer);
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf)
{
    struct peer *peer = stream->data;

    if (n_read > 0 && !peer->closing)
        take_bytes(peer, buf->base, (size_t)n_read);
    else if (n_read == UV_EOF)
        peer_fail(peer, FSDP_ERR_PEER, "closed the connection");
    else if (n_read < 0)
        peer_fail(peer, FSDP_ERR_PEER, uv_strerror((int)n_read));
}

/* --- opening ----------------------------------------------------------------------------------------------------- */

/* The connection stands: limits on silence below TCP, and the handshake above it. */
void peer_begin(struct peer *peer)
{
    const unsigned user_timeout_ms = (unsigned)peer->config.lost_ms;
    struct fsdp_err err = { 0 };
    uv_os_fd_t fd;
    int status;

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
        peer_fail(peer, FSDP_ERR_PEER, uv_strerror(status));
    else
        peer_begin(peer);
}

struct peer *peer_create(uv_loop_t *loop, const struct peer_config *config, struct peer_listener *listener,
                         const struct tls_context *tls, struct fsdp_err *err)
{
    struct peer *peer = calloc(1, sizeof *peer);

    if (peer == NULL) {
        fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a connection");
        return NULL;
    }
    peer->config = *config;
    if (tls != NULL && tls_create(&peer->tls, tls, err) != FSDP_OK) {
        free(peer);
        return NULL;
    }
    peer->config.key = NULL; /* the caller's memory is not ours to keep */
    peer->listener = listener;
    peer->born_ms = peer->heard_ms = uv_now(loop);
    snprintf(peer->name, sizeof peer->name, "?");
    frame_parser_init(&peer->parser, FRAME_FIRST_MAX_BYTES);
    uv_tcp_init(loop, &peer->tcp);
    uv_timer_init(loop, &peer->timer);
    peer->tcp.data = peer->timer.data = peer;
    peer->n_open = 2;
    uv_timer_start(&peer->timer, on_timer, (uint64_t)config->beat_ms, (uint64_t)config->beat_ms);
    return peer;
}

enum fsdp_status peer_connect(struct peer **out, uv_loop_t *loop, const struct sockaddr *address,
                              const struct peer_config *config, struct fsdp_err *err)
{
    enum fsdp_status made;
    struct tls_context *tls = NULL;
    struct peer *peer;
    int status;

    *out = NULL;
    if (config->key != NULL && (made = tls_context_create(&tls, false, config->key, err)) != FSDP_OK)
        return made;
    *out = peer = peer_create(loop, config, NULL, tls, err);
    tls_context_destroy(tls);
    if (peer == NULL)
        return FSDP_ERR_NOMEM;
    status = uv_tcp_connect(&peer->connecting, &peer->tcp, address, on_connected);
    if (status < 0)
        peer_fail(peer, FSDP_ERR_PEER, uv_strerror(status)); /* told by closed(), as a refusal would be */
    return FSDP_OK;
}

void peer_admit(struct peer *peer)
{
    if (peer->admitted)
        return;
    peer->admitted = true;
    peer_listener_proven(peer);
    frame_parser_limit(&peer->parser, FRAME_MAX_BYTES);
}

/* --- what is known of it ----------------------------------------------------------------------------------------- */

void peer_set_data(struct peer *peer, void *data)
{
    peer->data = data;
}

void *peer_data(const struct peer *peer)
{
    return peer->data;
}

int64_t peer_silent_ms(const struct peer *peer)
{
    return (int64_t)(uv_now(peer->tcp.loop) - peer->heard_ms);
}

const char *peer_name(const struct peer *peer)
{
    return peer->name;
}
