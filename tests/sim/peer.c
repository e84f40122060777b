/* agent/wire/peer.h over simulated connections, in place of agent/wire/peer.c and peer_listener.c. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/net_impl.h"

struct peer *net_create_peer(struct process *process, struct connection *connection, int side,
                             const struct peer_config *config)
{
    struct peer *peer = calloc(1, sizeof *peer);

    peer->process = process;
    peer->connection = connection;
    peer->side = side;
    peer->config = *config;
    peer->inbox_end = &peer->inbox;
    uv_timer_init(&process->loop, &peer->timer);
    peer->timer.data = peer;
    snprintf(peer->name, sizeof peer->name, "10.0.0.%d:%d", connection->host[!side]->number + 1,
             side == 0 ? connection->port : 40000);
    connection->end[side] = peer;
    peer->next = process->peers;
    process->peers = peer;
    return peer;
}

struct peer_listener *net_find_listener(const struct host *host, int port)
{
    struct peer_listener *listener =
        host->process == NULL || !host->process->alive ? NULL : host->process->listeners;

    while (listener != NULL && listener->port != port)
        listener = listener->next;
    return listener;
}

/* The process reads */

static void fail(struct peer *peer, const char *words)
{
    const bool refused = strcmp(words, "connection refused") == 0;
    struct fsdp_err why = { 0 };

    fsdp_fail(&why, refused ? FSDP_ERR_NOT_FOUND : FSDP_ERR_PEER, "%s", words);
    peer_close(peer, &why);
}

static void on_late(uv_timer_t *timer)
{
    struct peer *peer = timer->data;

    if (!peer->admitted)
        fail(peer, peer->opened ? "did not say who it is in time" : "no handshake in time");
}

static void begin(struct peer *peer)
{
    peer->opened = true;
    if (peer->config.handlers.opened != NULL)
        peer->config.handlers.opened(peer->config.arg, peer);
}

static void read_segment(struct peer *peer, const struct segment *segment)
{
    struct connection *connection = peer->connection;

    peer->n_received += segment->bytes;
    switch (segment->kind) {
    case ACCEPTED:
        peer->connected = true;
        net_enqueue(connection, 0, HELLO_1, NULL);
        break;
    case HELLO_1:
        net_enqueue(connection, 1, HELLO_2, NULL);
        break;
    case HELLO_2:
        net_enqueue(connection, 0, HELLO_3, NULL);
        begin(peer);
        break;
    case HELLO_3:
        begin(peer);
        break;
    case FRAME:
        peer->config.handlers.frame(peer->config.arg, peer, &segment->frame);
        break;
    case FIN:
        peer->ended = peer->left = true;
        fail(peer, "closed the connection");
        break;
    case SYN:
    case RESET:
        break;
    }
}

/* The loop learns of a connection that its kernel has accepted. */
static void announce(struct peer *peer)
{
    if (!peer->is_new)
        return;
    peer->is_new = false;
    uv_timer_start(&peer->timer, on_late, (uint64_t)peer->config.handshake_ms, 0);
    if (peer->config.handlers.accepted != NULL)
        peer->config.handlers.accepted(peer->config.arg, peer);
}

static void read_all(struct peer *peer)
{
    announce(peer);
    if (peer->drained && !peer->closing && peer->config.handlers.sent != NULL)
        peer->config.handlers.sent(peer->config.arg, peer);
    peer->drained = false;
    while (peer->inbox != NULL && !peer->closing) {
        struct segment *segment = peer->inbox;

        peer->inbox = segment->next;
        if (peer->inbox == NULL)
            peer->inbox_end = &peer->inbox;
        read_segment(peer, segment);
        free(segment);
    }
    if (peer->broken != NULL && !peer->closing) {
        peer->left = true;
        fail(peer, peer->broken);
    }
}

void sim_net_deliver(struct process *process)
{
    struct peer *peer = process->ready, *next;

    process->ready = NULL;
    process->ready_end = &process->ready;
    for (; peer != NULL; peer = next) {
        next = peer->next_ready;
        peer->is_ready = false;
        read_all(peer);
    }
}

/* agent/wire/peer.h */

void peer_config_init(struct peer_config *config)
{
    *config = (struct peer_config){ .handshake_ms = 5000, .unsent_ms = 3000 };
}

enum fsdp_status peer_listen(struct peer_listener **out, uv_loop_t *loop, const struct sockaddr *address,
                             const struct peer_config *config, struct fsdp_err *err)
{
    struct process *process = loop->data;
    static int free_port = 50000;
    int port = ntohs(address->sa_family == AF_INET ? ((const struct sockaddr_in *)address)->sin_port
                                                   : ((const struct sockaddr_in6 *)address)->sin6_port);

    *out = NULL;
    if (port == 0)
        port = free_port++;
    for (struct peer_listener *other = process->listeners; other != NULL; other = other->next)
        if (other->port == port && other->family == address->sa_family)
            return fsdp_fail(err, FSDP_ERR_BUSY, "port %d is in use", port);
    *out = calloc(1, sizeof **out);
    **out = (struct peer_listener){ .next = process->listeners,
                                    .process = process,
                                    .config = *config,
                                    .family = address->sa_family,
                                    .port = port };
    process->listeners = *out;
    return FSDP_OK;
}

void peer_listener_expect(struct peer_listener *listener, int n_expected)
{
    (void)listener; /* connections are not limited here */
    (void)n_expected;
}

int peer_listener_port(const struct peer_listener *listener)
{
    return listener->port;
}

void peer_listener_close(struct peer_listener *listener)
{
    struct peer_listener **link = &listener->process->listeners;

    while (*link != listener)
        link = &(*link)->next;
    *link = listener->next;
    for (struct peer *peer = listener->process->peers, *next; peer != NULL; peer = next) {
        next = peer->next;
        if (peer->side != 1 || peer->admitted)
            continue;
        announce(peer);
        peer_close(peer, NULL);
    }
}

enum fsdp_status peer_connect(struct peer **out, uv_loop_t *loop, const struct sockaddr *address,
                              const struct peer_config *config, struct fsdp_err *err)
{
    struct process *process = loop->data;
    const struct sockaddr_in *to = (const struct sockaddr_in *)address;
    const int number = (int)(ntohl(to->sin_addr.s_addr) & 0xff) - 1;
    struct connection *connection = calloc(1, sizeof *connection);

    (void)err;
    connection->host[0] = process->host;
    connection->host[1] = &sim_hosts[number];
    connection->port = ntohs(to->sin_port);
    connection->next = sim_connections;
    sim_connections = connection;
    *out = net_create_peer(process, connection, 0, config);
    uv_timer_start(&(*out)->timer, on_late, (uint64_t)config->handshake_ms, 0);
    net_enqueue(connection, 0, SYN, NULL);
    return FSDP_OK;
}

void peer_admit(struct peer *peer)
{
    peer->admitted = true;
    uv_timer_stop(&peer->timer);
}

void peer_send(struct peer *peer, const struct frame *frame)
{
    struct process *process = peer->process;
    const bool last = ++process->n_sends == process->crash_at_send;

    if (last && sim_one_in(SIM_FAULTS, 2)) {
        sim_kill(process, sim_one_in(SIM_FAULTS, 3));
        longjmp(sim_turn, 1);
    }
    if (!peer->closing && peer->opened && peer->connection->end[peer->side] == peer)
        net_enqueue(peer->connection, peer->side, FRAME, frame);
    if (last) {
        sim_kill(process, sim_one_in(SIM_FAULTS, 3));
        longjmp(sim_turn, 1);
    }
}

size_t peer_queued(const struct peer *peer)
{
    const size_t n = peer->connection->way[peer->side].unacknowledged;

    return n > WINDOW_BYTES ? n - WINDOW_BYTES : 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct peer *peer = handle->data;
    struct peer **link = &peer->process->peers;

    while (*link != peer)
        link = &(*link)->next;
    *link = peer->next;
    peer->config.handlers.closed(peer->config.arg, peer, &peer->why);
}

static void close_peer(struct peer *peer, const struct fsdp_err *why, bool reset)
{
    struct connection *connection = peer->connection;

    if (peer->closing)
        return;
    peer->closing = true;
    if (why != NULL)
        peer->why = *why;
    if (connection->end[peer->side] == peer) {
        if (reset || peer->inbox != NULL) {
            net_reset_from(connection, peer->side);
        } else {
            net_enqueue(connection, peer->side, FIN, NULL);
            connection->end[peer->side] = NULL;
        }
    }
    uv_close((uv_handle_t *)&peer->timer, on_closed);
}

void peer_close(struct peer *peer, const struct fsdp_err *why)
{
    close_peer(peer, why, false);
}

void peer_reset(struct peer *peer)
{
    close_peer(peer, NULL, true);
}

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
    (void)peer; /* in clear text nothing is proven */
    return NULL;
}

uint64_t peer_received(const struct peer *peer)
{
    return peer->n_received;
}

size_t peer_unacknowledged(const struct peer *peer)
{
    return peer->connection->way[peer->side].unacknowledged;
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

void peer_address(const struct peer *peer, bool ours, char *out, size_t size)
{
    snprintf(out, size, "10.0.0.%d", peer->connection->host[ours ? peer->side : !peer->side]->number + 1);
}
