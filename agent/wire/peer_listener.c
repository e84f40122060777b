#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <xxhash.h>

#include "agent/wire/peer_impl.h"
#include "shard_runtime/core/table.h"

enum {
    /*
     * Connections accepted in one turn of the loop. It is less than the number of unproven connections that
     * one source may have. So each connection is read at least once before a later one can displace it.
     */
    TURN = 16
};

struct peer_listener {
    uv_tcp_t tcp;
    uv_idle_t turn; /* runs while n_taken is not 0; begins the next turn after one pass of the loop */
    struct peer_config config;
    struct peer *unproven; /* accepted connections that were not admitted yet, newest first */
    int n_unproven;
    int n_expected;       /* peers that are expected */
    struct table sources; /* entries are struct peer_source: the addresses of unproven connections */
    int n_peers;          /* accepted connections that are not closed yet; they point to this listener */
    int n_taken;          /* connections accepted in this turn */
    int n_open;           /* handles whose memory the loop still holds */
    bool waiting;         /* a connection waits; the next turn accepts it */
};

/* An address from which unproven connections come. */
struct peer_source {
    struct table_entry link;
    struct in6_addr address;
    int n_unproven;
};

static void free_listener_when_done(struct peer_listener *listener)
{
    if (listener->n_open > 0 || listener->n_peers > 0)
        return;
    table_empty(&listener->sources); /* no entry is left in the table: all connections are closed */
    free(listener);
}

/* Returns the bytes that tell sources apart; all zero for a family other than IPv4 and IPv6. */
static struct in6_addr source_address(const struct sockaddr_storage *from)
{
    struct in6_addr address = { 0 };

    if (from->ss_family == AF_INET6)
        address = ((const struct sockaddr_in6 *)from)->sin6_addr;
    else if (from->ss_family == AF_INET)
        memcpy(&address.s6_addr[12], &((const struct sockaddr_in *)from)->sin_addr, 4);
    return address;
}

/*
 * Finds the source of a connection. `make`: adds it if it is new. NULL: it is not known, and was not added or
 * there is no memory.
 */
static struct peer_source *find_source(struct peer_listener *listener, const struct sockaddr_storage *from,
                                       bool make)
{
    const struct in6_addr address = source_address(from);
    const uint64_t hash = XXH3_64bits(&address, sizeof address);
    struct peer_source *source;

    for (struct table_entry *at = table_first(&listener->sources, hash); at != NULL; at = table_next(at)) {
        source = TABLE_OWNER(at, struct peer_source, link);
        if (memcmp(&source->address, &address, sizeof address) == 0)
            return source;
    }
    source = make ? calloc(1, sizeof *source) : NULL;
    if (source == NULL)
        return NULL;
    source->address = address;
    if (table_add(&listener->sources, &source->link, hash))
        return source;
    free(source);
    return NULL;
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
    peer->source = find_source(listener, &peer->from, true);
    if (peer->source != NULL)
        peer->source->n_unproven++;
}

void peer_listener_proven(struct peer *peer)
{
    struct peer_listener *listener = peer->listener;

    if (peer->link == NULL)
        return;
    *peer->link = peer->next;
    if (peer->next != NULL)
        peer->next->link = peer->link;
    peer->link = NULL;
    listener->n_unproven--;
    if (peer->source == NULL || --peer->source->n_unproven > 0)
        return;
    table_remove(&listener->sources, &peer->source->link);
    free(peer->source);
}

void peer_listener_forget(struct peer_listener *listener)
{
    listener->n_peers--;
    free_listener_when_done(listener);
}

/* Limits for connections that have not proven themselves */

/*
 * Returns the unproven connection to close first, among those of `source` (NULL: among all). It is the oldest
 * that has sent nothing, or else the oldest. Called only if there are too many.
 */
static struct peer *find_victim(const struct peer_listener *listener, const struct peer_source *source)
{
    struct peer *oldest = NULL, *oldest_silent = NULL;

    for (struct peer *peer = listener->unproven; peer != NULL; peer = peer->next) {
        if (source != NULL && peer->source != source)
            continue;
        oldest = peer;
        if (peer->n_received == 0)
            oldest_silent = peer;
    }
    return oldest_silent != NULL ? oldest_silent : oldest;
}

static void make_room(struct peer_listener *listener, const struct peer *newcomer)
{
    const struct peer_source *source = find_source(listener, &newcomer->from, false);
    struct peer *victim;

    if (source != NULL && source->n_unproven >= PEER_MAX_UNPROVEN_OF_SOURCE + listener->n_expected)
        victim = find_victim(listener, source);
    else if (listener->n_unproven >= PEER_MAX_UNPROVEN + listener->n_expected)
        victim = find_victim(listener, NULL);
    else
        return;
    peer_listener_proven(victim);
    peer_fail(victim, FSDP_ERR_PEER, "too many connections that have not proven themselves");
}

/* Accepting connections */

static void on_turn(uv_idle_t *turn);

static void take(struct peer_listener *listener)
{
    struct peer *peer = peer_create(listener->tcp.loop, &listener->config, listener, NULL);
    int status;

    if (peer == NULL) { /* without memory, the next turn tries again */
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
 * libuv accepts connections as long as any come. Strangers that reconnect as soon as they are closed could
 * keep it busy, and the loop would serve nothing else. So a turn ends after TURN connections:
 *   1. This callback returns without uv_accept(), which makes libuv stop accepting.
 *   2. The next turn accepts the connection.
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

/* Opening and closing */

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
    int status;

    *out = NULL;
    if (listener == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a listener");
    listener->config = *config;
    uv_tcp_init(loop, &listener->tcp);
    uv_idle_init(loop, &listener->turn);
    listener->tcp.data = listener->turn.data = listener;
    listener->n_open = 2;
    status = uv_tcp_bind(&listener->tcp, address, 0);
    if (status == 0)
        status = uv_listen((uv_stream_t *)&listener->tcp, SOMAXCONN, on_connection);
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

void peer_listener_expect(struct peer_listener *listener, int n_expected)
{
    listener->n_expected = n_expected;
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
        /* the peer stays in this list until its close callback runs */
        peer_fail(peer, FSDP_ERR_PEER, "came too late");
}
