#include <stdlib.h>
#include <string.h>

#include "agent/peer_impl.h"

enum { BACKLOG = 64 };

struct peer_listener {
    uv_tcp_t tcp;
    struct peer_config config;
    unsigned char key[TLS_KEY_BYTES];
    struct peer *unproven; /* accepted and not admitted yet */
    int n_unproven;
    int n_peers; /* accepted and not gone: they point here */
    bool closed;
};

static void free_listener_when_done(struct peer_listener *listener)
{
    if (listener->closed && listener->n_peers == 0)
        free(listener);
}

static void add_unproven(struct peer *peer)
{
    struct peer_listener *listener = peer->listener;

    peer->next = listener->unproven;
    peer->link = &listener->unproven;
    if (peer->next != NULL)
        peer->next->link = &peer->next;
    listener->unproven = peer;
    listener->n_unproven++;
}

void peer_listener_proven(struct peer *peer)
{
    if (peer->link == NULL)
        return;
    *peer->link = peer->next;
    if (peer->next != NULL)
        peer->next->link = peer->link;
    peer->link = NULL;
    peer->listener->n_unproven--;
}

void peer_listener_forget(struct peer_listener *listener)
{
    listener->n_peers--;
    free_listener_when_done(listener);
}

static void on_connection(uv_stream_t *server, int status)
{
    struct peer_listener *listener = server->data;
    struct peer *peer;

    if (status < 0)
        return;
    peer = peer_create(server->loop, &listener->config, listener, NULL);
    if (peer == NULL)
        return; /* the connection stays in the backlog until there is memory */
    listener->n_peers++;
    add_unproven(peer);
    if (peer->config.handlers.accepted != NULL)
        peer->config.handlers.accepted(peer->config.arg, peer);
    status = uv_accept(server, (uv_stream_t *)&peer->tcp);
    if (status < 0)
        peer_fail(peer, FSDP_ERR_PEER, uv_strerror(status));
    else if (listener->n_unproven > PEER_MAX_UNPROVEN)
        peer_fail(peer, FSDP_ERR_PEER, "too many connections that have not proven themselves");
    else
        peer_begin(peer);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct peer_listener *listener = handle->data;

    listener->closed = true;
    free_listener_when_done(listener);
}

enum fsdp_status peer_listen(struct peer_listener **out, uv_loop_t *loop, const struct sockaddr *address,
                             const struct peer_config *config, struct fsdp_err *err)
{
    struct peer_listener *listener = calloc(1, sizeof *listener);
    int status;

    *out = NULL;
    if (listener == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a listener");
    listener->config = *config;
    if (config->key != NULL) {
        memcpy(listener->key, config->key, sizeof listener->key);
        listener->config.key = listener->key;
    }
    uv_tcp_init(loop, &listener->tcp);
    listener->tcp.data = listener;
    status = uv_tcp_bind(&listener->tcp, address, 0);
    if (status == 0)
        status = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, on_connection);
    if (status < 0) {
        uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
        return fsdp_fail(err,
                         status == UV_EADDRINUSE      ? FSDP_ERR_BUSY
                         : status == UV_EADDRNOTAVAIL ? FSDP_ERR_NOT_FOUND
                                                      : FSDP_ERR_IO,
                         "%s", uv_strerror(status));
    }
    *out = listener;
    return FSDP_OK;
}

int peer_listener_port(const struct peer_listener *listener)
{
    struct sockaddr_storage address = { 0 };
    int length = sizeof address, port;
    char host[64];

    uv_tcp_getsockname(&listener->tcp, (struct sockaddr *)&address, &length);
    peer_format_address(&address, host, sizeof host, &port);
    return port;
}

void peer_listener_close(struct peer_listener *listener)
{
    if (listener == NULL || uv_is_closing((uv_handle_t *)&listener->tcp))
        return;
    uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
    for (struct peer *peer = listener->unproven; peer != NULL; peer = peer->next)
        peer_fail(peer, FSDP_ERR_PEER, "came too late"); /* leaves the list later, from its close callback */
}
