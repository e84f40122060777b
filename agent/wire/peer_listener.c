#include <stdlib.h>
#include <string.h>

#include "agent/wire/peer_impl.h"

enum {
    BACKLOG = 64,
    /* Fewer than a source may hold: so each connection is read from before a later one may take its place. */
    TURN = 16
};

struct peer_listener {
    uv_tcp_t tcp;
    uv_idle_t turn; /* runs while n_taken is not 0: the loop goes round once, and the next turn begins */
    struct peer_config config;
    struct tls_context *tls; /* NULL: clear text */
    struct peer *unproven;   /* accepted and not admitted yet, the newest first */
    int n_peers;             /* accepted and not gone: they point here */
    int n_taken;             /* in this turn */
    int n_open;              /* handles whose memory the loop still holds */
    bool waiting;            /* a connection has come that the next turn takes */
};

static void free_listener_when_done(struct peer_listener *listener)
{
    if (listener->n_open > 0 || listener->n_peers > 0)
        return;
    tls_context_destroy(listener->tls);
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
}

void peer_listener_proven(struct peer *peer)
{
    if (peer->link == NULL)
        return;
    *peer->link = peer->next;
    if (peer->next != NULL)
        peer->next->link = peer->link;
    peer->link = NULL;
}

void peer_listener_forget(struct peer_listener *listener)
{
    listener->n_peers--;
    free_listener_when_done(listener);
}

/* --- room for strangers ------------------------------------------------------------------------------------------- */

static bool is_same_source(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

/* How many are unproven, of this source or (NULL) of all; *first is the one that goes first, NULL when there is none. */
static int count_unproven(const struct peer_listener *listener, const struct sockaddr_storage *source,
                          struct peer **first)
{
    struct peer *oldest = NULL, *oldest_silent = NULL;
    int n = 0;

    for (struct peer *peer = listener->unproven; peer != NULL; peer = peer->next) {
        if (source != NULL && !is_same_source(source, &peer->from))
            continue;
        n++;
        oldest = peer;
        if (!peer->spoke)
            oldest_silent = peer;
    }
    *first = oldest_silent != NULL ? oldest_silent : oldest;
    return n;
}

static void make_room(struct peer_listener *listener, const struct peer *newcomer)
{
    struct peer *of_all, *of_source;
    const int n_of_source = count_unproven(listener, &newcomer->from, &of_source),
              n = count_unproven(listener, NULL, &of_all);
    struct peer *victim = n_of_source >= PEER_MAX_UNPROVEN_OF_SOURCE ? of_source
                          : n >= PEER_MAX_UNPROVEN                   ? of_all
                                                                     : NULL;

    if (victim == NULL)
        return;
    peer_listener_proven(victim);
    peer_fail(victim, FSDP_ERR_PEER, "too many connections that have not proven themselves");
}

/* --- who comes ---------------------------------------------------------------------------------------------------- */

static void on_turn(uv_idle_t *turn);

static void take(struct peer_listener *listener)
{
    struct peer *peer = peer_create(listener->tcp.loop, &listener->config, listener, listener->tls, NULL);
    int status;

    if (peer == NULL) { /* no memory: the next turn tries again */
        listener->waiting = true;
        uv_idle_start(&listener->turn, on_turn);
        return;
    }
    listener->n_peers++;
    if (peer->config.handlers.accepted != NULL)
        peer->config.handlers.accepted(peer->config.arg, peer);
    status = uv_accept((uv_stream_t *)&listener->tcp, (uv_stream_t *)&peer->tcp);
    if (status < 0) {
        peer_fail(peer, FSDP_ERR_PEER, uv_strerror(status));
        return;
    }
    peer_find_address(peer, false, &peer->from);
    make_room(listener, peer);
    add_unproven(peer);
    peer_begin(peer);
}

static void on_turn(uv_idle_t *turn)
{
    struct peer_listener *listener = turn->data;

    uv_idle_stop(turn);
    listener->n_taken = 0;
    if (!listener->waiting)
        return;
    listener->waiting = false;
    take(listener);
}

/*
 * libuv accepts for as long as connections come. Strangers who reconnect as soon as they are cut would keep it at
 * that, and the loop would serve nothing else. So a turn ends after TURN connections: this callback returns without
 * uv_accept(), which makes libuv stop, and the next turn takes the connection.
 */
static void on_connection(uv_stream_t *server, int status)
{
    struct peer_listener *listener = server->data;

    if (status < 0)
        return;
    uv_idle_start(&listener->turn, on_turn);
    listener->waiting = ++listener->n_taken > TURN;
    if (!listener->waiting)
        take(listener);
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static void on_listener_closed(uv_handle_t *handle)
{
    struct peer_listener *listener = handle->data;

    listener->n_open--;
    free_listener_when_done(listener);
}

static void close_handles(struct peer_listener *listener)
{
    uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
    uv_close((uv_handle_t *)&listener->turn, on_listener_closed);
}

enum fsdp_status peer_listen(struct peer_listener **out, uv_loop_t *loop, const struct sockaddr *address,
                             const struct peer_config *config, struct fsdp_err *err)
{
    struct peer_listener *listener = calloc(1, sizeof *listener);
    enum fsdp_status made;
    int status;

    *out = NULL;
    if (listener == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a listener");
    listener->config = *config;
    listener->config.key = NULL; /* the context has it */
    if (config->key != NULL &&
        (made = tls_context_create(&listener->tls, true, config->key, err)) != FSDP_OK) {
        free(listener);
        return made;
    }
    uv_tcp_init(loop, &listener->tcp);
    uv_idle_init(loop, &listener->turn);
    listener->tcp.data = listener->turn.data = listener;
    listener->n_open = 2;
    status = uv_tcp_bind(&listener->tcp, address, 0);
    if (status == 0)
        status = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, on_connection);
    if (status < 0) {
        close_handles(listener);
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
    close_handles(listener);
    for (struct peer *peer = listener->unproven; peer != NULL; peer = peer->next)
        peer_fail(peer, FSDP_ERR_PEER, "came too late"); /* leaves the list later, from its close callback */
}
