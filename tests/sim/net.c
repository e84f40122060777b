/*
 * Connections between hosts. A connection is two queues of segments, one for each direction. A segment is one
 * frame, or a step of the handshake, or an end.
 *   - The first segment of a direction arrives after a delay; the later ones keep their order.
 *   - On a path that is cut, the segment is sent again after 0.2, 0.4, 0.8 ... s, as TCP does it. The
 *     kernel of the sender gives up when nothing was acknowledged for `unsent_ms` (TCP_USER_TIMEOUT).
 *   - The kernel of a host accepts and acknowledges while the process stands still.
 *   - A reset throws away what is under way, and what arrived and was not read.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/net_impl.h"

bool sim_cut[SIM_HOSTS][SIM_HOSTS];
struct connection *sim_connections;

/* A paused machine neither sends nor acknowledges; its own timers of TCP stand still, too. */
static bool is_paused(const struct host *host)
{
    return host->suspended && sim_now < host->stalled_until;
}

static bool passes(const struct host *from, const struct host *to)
{
    return !from->down && !to->down && !is_paused(from) && !is_paused(to) &&
           !sim_cut[from->number][to->number];
}

bool sim_net_passes(const struct host *from, const struct host *to, int64_t *delay_ns)
{
    *delay_ns = sim_plan.delay_ns / 2 + sim_between(SIM_PULSES, 0, sim_plan.delay_ns);
    if (sim_one_in(SIM_PULSES, sim_plan.spikes_one_in))
        *delay_ns += sim_between(SIM_PULSES, 0, 2 * SECOND);
    return passes(from, to) && !sim_one_in(SIM_PULSES, sim_plan.loses_one_in);
}

static int64_t draw_delay(void)
{
    int64_t delay = sim_plan.delay_ns / 2 + sim_between(SIM_NET, 0, sim_plan.delay_ns);

    if (sim_one_in(SIM_NET, sim_plan.loses_one_in))
        delay += 200 * MS; /* lost once, and sent again */
    if (sim_one_in(SIM_NET, sim_plan.spikes_one_in))
        delay += sim_between(SIM_NET, 0, 300 * MS);
    return delay;
}

/* Ends of connections */

void net_make_ready(struct peer *peer)
{
    struct process *process = peer->process;

    if (!peer->is_ready) {
        peer->is_ready = true;
        peer->next_ready = NULL;
        *process->ready_end = peer;
        process->ready_end = &peer->next_ready;
    }
    sim_wake(process);
}

/* The kernel of this end gives the connection up. What was not read is gone. */
static void break_end(struct connection *connection, int side, const char *words)
{
    struct peer *peer = connection->end[side];

    connection->end[side] = NULL;
    connection->way[side].first = connection->way[side].last = NULL;
    if (peer == NULL)
        return;
    peer->inbox = NULL;
    peer->inbox_end = &peer->inbox;
    if (peer->closing)
        return;
    peer->broken = words;
    net_make_ready(peer);
}

static void carry(void *what, uint64_t side);

void net_enqueue(struct connection *connection, int side, enum kind kind, const struct frame *frame)
{
    struct way *way = &connection->way[side];
    const size_t size = frame == NULL ? 0 : frame->size;
    struct segment *segment = calloc(1, sizeof *segment + size);

    segment->kind = kind;
    segment->sent_at = sim_now;
    segment->at = sim_now + draw_delay();
    segment->bytes = frame == NULL ? CONTROL_BYTES : FRAME_HEAD_BYTES + size;
    if (frame != NULL) {
        segment->frame = *frame;
        if (size > 0)
            memcpy(segment->payload, frame->payload, size);
        segment->frame.payload = segment->payload;
    }
    if (segment->at <= way->last_at)
        segment->at = way->last_at + 1;
    way->last_at = segment->at;
    if (kind != RESET)
        way->unacknowledged += segment->bytes;
    if (way->first == NULL) {
        way->first = way->last = segment;
        way->n_tries = 0;
        sim_at(segment->at, carry, connection, (uint64_t)side);
    } else {
        way->last->next = segment;
        way->last = segment;
    }
}

/* A reset leaves this end: it overtakes nothing, but all that waits here is thrown away. */
void net_reset_from(struct connection *connection, int side)
{
    connection->way[side].first = connection->way[side].last = NULL;
    connection->end[side] = NULL;
    net_enqueue(connection, side, RESET, NULL);
}

static int64_t patience_of(const struct connection *connection, int side)
{
    const struct peer *peer = connection->end[side];

    return (peer == NULL || peer->config.unsent_ms <= 0 ? 20000 : peer->config.unsent_ms) * MS;
}

struct receipt {
    struct connection *connection;
    int side, n_tries;
    size_t bytes;
    int64_t sent_at;
};

/* The other kernel's acknowledgement comes back. */
static void acknowledge(void *what, uint64_t number)
{
    struct receipt *receipt = what;
    struct connection *connection = receipt->connection;
    const int side = receipt->side;
    struct way *way = &connection->way[side];
    struct peer *peer = connection->end[side];

    (void)number;
    if (connection->end[side] == NULL) {
        free(receipt);
        return;
    }
    if (!passes(connection->host[!side], connection->host[side])) {
        if (sim_now - receipt->sent_at > patience_of(connection, side) &&
            !is_paused(connection->host[side])) {
            break_end(connection, side, "connection timed out");
            free(receipt);
            return;
        }
        sim_at(sim_now + (200 * MS << (receipt->n_tries < 10 ? receipt->n_tries : 10)), acknowledge, receipt,
               0);
        receipt->n_tries++;
        return;
    }
    if (peer_queued(peer) > 0 && !peer->is_ready) {
        peer->drained = true;
        net_make_ready(peer);
    }
    way->unacknowledged -= receipt->bytes < way->unacknowledged ? receipt->bytes : way->unacknowledged;
    free(receipt);
}

/* A segment has reached the kernel of the other host. */
static void arrive(struct connection *connection, int side, struct segment *segment)
{
    struct host *to = connection->host[!side];
    struct peer *peer = connection->end[!side];

    if (segment->kind == SYN) {
        const struct peer_listener *listener = net_find_listener(to, connection->port);

        if (listener == NULL) {
            net_reset_from(connection, 1);
            return;
        }
        peer = net_create_peer(listener->process, connection, 1, &listener->config);
        peer->is_new = true;
        peer->connected = true;
        net_enqueue(connection, 1, ACCEPTED, NULL);
        net_make_ready(peer);
        return;
    }
    if (segment->kind == RESET) {
        break_end(connection, !side,
                  peer != NULL && !peer->connected ? "connection refused" : "connection reset by peer");
        return;
    }
    if (peer == NULL || peer->closing) {
        if (segment->kind != FIN || peer == NULL)
            net_reset_from(connection, !side);
        return;
    }
    segment->next = NULL;
    *peer->inbox_end = segment;
    peer->inbox_end = &segment->next;
    net_make_ready(peer);
}

/* The first segment of a direction is due. */
static void carry(void *what, uint64_t number)
{
    struct connection *connection = what;
    const int side = (int)number;
    struct way *way = &connection->way[side];
    struct segment *segment = way->first;
    struct receipt *receipt;

    if (segment == NULL || segment->at > sim_now)
        return; /* a reset has replaced it */
    if (!passes(connection->host[side], connection->host[!side])) {
        const int64_t pause = segment->kind == SYN ? SECOND : 200 * MS;

        if (segment->kind == RESET)
            return; /* lost; it is not sent again */
        if (is_paused(connection->host[side])) {
            segment->at = connection->host[side]->stalled_until + MS;
            segment->sent_at = segment->at;
            sim_at(segment->at, carry, connection, number);
            return;
        }
        if (sim_now - segment->sent_at > patience_of(connection, side) || connection->host[side]->down) {
            break_end(connection, side, "connection timed out");
            return;
        }
        segment->at = sim_now + (pause << (way->n_tries < 10 ? way->n_tries : 10));
        way->n_tries++;
        sim_at(segment->at, carry, connection, number);
        return;
    }
    way->n_tries = 0;
    way->first = segment->next;
    if (way->first == NULL)
        way->last = NULL;
    if (segment->kind != RESET) {
        receipt = malloc(sizeof *receipt);
        *receipt = (struct receipt){ connection, side, 0, segment->bytes, segment->sent_at };
        sim_at(sim_now + draw_delay(), acknowledge, receipt, 0);
    }
    arrive(connection, side, segment);
    if (way->first != NULL) {
        if (way->first->at <= sim_now)
            way->first->at = sim_now + 1000;
        sim_at(way->first->at, carry, connection, number);
    }
}

/* Ends from outside */

void sim_net_end(struct process *process, bool silent)
{
    process->listeners = NULL;
    for (struct peer *peer = process->peers; peer != NULL; peer = peer->next) {
        struct connection *connection = peer->connection;

        if (peer->closing || connection->end[peer->side] != peer)
            continue;
        peer->closing = true;
        connection->end[peer->side] = NULL;
        if (silent)
            connection->way[peer->side].first = connection->way[peer->side].last = NULL;
        else if (peer->inbox != NULL)
            net_reset_from(connection, peer->side);
        else
            net_enqueue(connection, peer->side, FIN, NULL);
    }
}

void sim_net_reset(int a, int b)
{
    for (struct connection *connection = sim_connections; connection != NULL; connection = connection->next) {
        const int from = connection->host[0]->number, to = connection->host[1]->number;

        if (!((from == a && to == b) || (from == b && to == a)) || connection->end[0] == NULL ||
            connection->end[1] == NULL)
            continue;
        for (int side = 0; side < 2; side++)
            break_end(connection, side, "software caused connection abort");
    }
}
