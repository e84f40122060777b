#include "shard_runtime/comm/tcp_mesh_impl.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "shard_runtime/comm/tcp_open.h"
#include "shard_runtime/core/require.h"

/* Bytes that one system call moves at most: so one connection cannot keep the others waiting for long. */
enum { CALL_BYTES = 256 << 10 };

/*
 * What a rank that gives up sends in place of its next call. Its reader waits LAST_WORDS_MS at most for the
 * rest of the words. HEAR_OUT_MS: see hear_out().
 */
struct last_words {
    struct comm_call call; /* COMM_GONE */
    char words[FSDP_ERR_MESSAGE_BYTES];
};
enum { LAST_WORDS_MS = 1000, HEAR_OUT_MS = 200 };

static int rank_of(const struct tcp_mesh *mesh, int node)
{
    return node * mesh->rails + mesh->rail;
}

size_t tcp_staging_bytes(int n)
{
    return (size_t)n * TCP_CHUNK_BYTES;
}

enum fsdp_status tcp_mesh_create(struct tcp_mesh **out, const struct tcp_mesh_config *config,
                                 struct fsdp_err *err)
{
    const size_t n = (size_t)config->n;
    struct tcp_mesh *mesh = calloc(1, sizeof *mesh);
    enum fsdp_status status;
    int *fds = malloc(n * sizeof *fds);

    *out = NULL;
    if (mesh != NULL) {
        mesh->conns = calloc(n, sizeof *mesh->conns);
        mesh->polls = calloc(n, sizeof *mesh->polls);
        mesh->sources = calloc(n, sizeof *mesh->sources);
        mesh->staging = malloc(n * TCP_CHUNK_BYTES);
    }
    if (fds == NULL || mesh == NULL || mesh->conns == NULL || mesh->polls == NULL || mesh->sources == NULL ||
        mesh->staging == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "connections to %d nodes", config->n);
        goto done;
    }
    memset(mesh->staging, 0, n * TCP_CHUNK_BYTES); /* touched now, not in the first collective */
    mesh->watch = config->watch;
    mesh->page = link_progress(config->link);
    mesh->patience_ms = tcp_patience_ms(config->link);
    mesh->n = config->n;
    mesh->self = config->self;
    mesh->rail = config->rail;
    mesh->rails = config->rails;
    for (int i = 0; i < config->n; i++)
        mesh->conns[i] = (struct conn){ .fd = -1,
                                        .call_out_at = sizeof(struct comm_call),
                                        .call_in_at = sizeof(struct comm_call) };
    status = tcp_open_all(fds, config, err);
    for (int i = 0; i < config->n; i++)
        mesh->conns[i].fd = fds[i];
    if (status != FSDP_OK)
        goto done;
    *out = mesh;
    mesh = NULL;
done:
    free(fds);
    tcp_mesh_destroy(mesh);
    return status;
}

void tcp_mesh_destroy(struct tcp_mesh *mesh)
{
    if (mesh == NULL)
        return;
    for (int i = 0; i < mesh->n && mesh->conns != NULL; i++)
        if (mesh->conns[i].fd >= 0)
            close(mesh->conns[i].fd);
    free(mesh->conns);
    free(mesh->polls);
    free(mesh->sources);
    free(mesh->staging);
    free(mesh);
}

void tcp_fail(struct tcp_mesh *mesh)
{
    for (int i = 0; i < mesh->n; i++)
        if (mesh->conns[i].fd >= 0)
            shutdown(mesh->conns[i].fd, SHUT_RDWR);
}

void tcp_say(struct tcp_mesh *mesh, const char *words)
{
    struct last_words last = { .call = { .kind = COMM_GONE } };

    snprintf(last.words, sizeof last.words, "%s", words);
    for (int i = 0; i < mesh->n; i++) {
        const struct conn *c = &mesh->conns[i];

        /*
         * Words may only be sent between two collectives; inside one, the reader would take them for data.
         * Between two, the socket's buffer is empty, so one send() takes all of them.
         */
        if (c->fd >= 0 && c->call_out_at == sizeof c->call_out && c->out_left == 0)
            (void)send(c->fd, &last, sizeof last, MSG_NOSIGNAL);
    }
    /*
     * Only our direction is closed. Closing both would reset the connection if the others still send, and the
     * words would be lost.
     */
    for (int i = 0; i < mesh->n; i++)
        if (mesh->conns[i].fd >= 0)
            shutdown(mesh->conns[i].fd, SHUT_WR);
}

static enum fsdp_status peer_gone(const struct tcp_mesh *mesh, int node, const char *why,
                                  struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_PEER, "the connection to rank %d is broken: %s", rank_of(mesh, node), why);
}

/*
 * Judges what send() or recv() returned. true: *bytes bytes went or came (0: not now). false: the connection
 * is broken; errno says how, 0 if the other end closed it.
 */
static bool moved(ssize_t n, size_t *bytes)
{
    *bytes = n > 0 ? (size_t)n : 0;
    if (n == 0)
        errno = 0;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static bool send_some(struct conn *c)
{
    size_t n = 1;

    while (c->call_out_at < sizeof c->call_out && n > 0) {
        if (!moved(send(c->fd, (const char *)&c->call_out + c->call_out_at,
                        sizeof c->call_out - c->call_out_at, MSG_NOSIGNAL),
                   &n))
            return false;
        c->call_out_at += n;
    }
    if (c->call_out_at < sizeof c->call_out || c->out_left == 0)
        return true;
    if (!moved(send(c->fd, c->out, c->out_left < CALL_BYTES ? c->out_left : CALL_BYTES, MSG_NOSIGNAL), &n))
        return false;
    c->out += n;
    c->out_left -= n;
    return true;
}

static bool receive_some(const struct tcp_mesh *mesh, struct conn *c)
{
    struct fsdp_progress_thread *thread = comm_thread(mesh->page);
    size_t n;

    if (c->call_in_at < sizeof c->call_in) {
        if (!moved(recv(c->fd, (char *)&c->call_in + c->call_in_at, sizeof c->call_in - c->call_in_at, 0),
                   &n))
            return false;
        c->call_in_at += n;
        return true; /* read no data yet: the caller first compares the other rank's call with its own */
    }
    if (!moved(recv(c->fd, c->in, c->in_left < CALL_BYTES ? c->in_left : CALL_BYTES, 0), &n))
        return false;
    c->in += n;
    c->in_left -= n;
    atomic_store_explicit(&thread->moved, atomic_load_explicit(&thread->moved, memory_order_relaxed) + n,
                          memory_order_relaxed);
    return true;
}

static bool wants_in(const struct conn *c)
{
    return c->fd >= 0 && (c->call_in_at < sizeof c->call_in || c->in_left > 0);
}

static bool wants_out(const struct conn *c)
{
    return c->fd >= 0 && (c->call_out_at < sizeof c->call_out || c->out_left > 0);
}

/*
 * Returns whether the other host is out of reach: nothing was heard for the mesh's patience, although
 *   - sent data waits for its acknowledgement, or
 *   - two probes of a full window were not answered.
 * A process that is only stopped is not cut off: its kernel still answers.
 */
static bool is_cut(const struct tcp_mesh *mesh, const struct conn *c)
{
    struct tcp_info info;
    socklen_t length = sizeof info;

    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0)
        return false;
    return (info.tcpi_unacked > 0 || info.tcpi_probes >= 2) && info.tcpi_last_ack_recv > mesh->patience_ms &&
           info.tcpi_last_data_recv > mesh->patience_ms;
}

/*
 * Shows on the progress page whose data is missing; if no data is missing, which node does not take this
 * rank's.
 */
static void show_missing(const struct tcp_mesh *mesh)
{
    struct fsdp_progress_thread *thread = comm_thread(mesh->page);
    uint32_t n_in = 0, n_out = 0;
    int in = -1, out = -1;

    for (int i = mesh->n - 1; i >= 0; i--) {
        if (wants_in(&mesh->conns[i])) {
            n_in++;
            in = rank_of(mesh, i);
        } else if (wants_out(&mesh->conns[i])) {
            n_out++;
            out = rank_of(mesh, i);
        }
    }
    atomic_store_explicit(&thread->n_missing, n_in > 0 ? n_in : n_out, memory_order_relaxed);
    atomic_store_explicit(&thread->peer, n_in > 0 ? in : out, memory_order_relaxed);
}

/* Called when nothing has moved for a moment. Returns FSDP_ERR_PEER if this rank waits in vain. */
static enum fsdp_status check_idle(struct tcp_mesh *mesh, struct fsdp_err *err)
{
    show_missing(mesh);
    for (int i = 0; i < mesh->n; i++)
        if ((wants_in(&mesh->conns[i]) || wants_out(&mesh->conns[i])) && is_cut(mesh, &mesh->conns[i]))
            return peer_gone(mesh, i, "no answer from its host", err);
    return watch_check(mesh->watch, err);
}

/* The call of `node` is COMM_GONE. Reads the reason, which comes after the call, into `err`. */
static enum fsdp_status peer_left(const struct tcp_mesh *mesh, int node, struct fsdp_err *err)
{
    struct pollfd readable = { .fd = mesh->conns[node].fd, .events = POLLIN };
    char words[FSDP_ERR_MESSAGE_BYTES] = "";
    size_t at = 0, n = 1;

    while (at < sizeof words && poll(&readable, 1, LAST_WORDS_MS) > 0 &&
           moved(recv(readable.fd, words + at, sizeof words - at, 0), &n))
        at += n;
    words[sizeof words - 1] = '\0';
    return fsdp_fail(err, FSDP_ERR_PEER, "rank %d left: %s", rank_of(mesh, node), words);
}

bool tcp_hear(struct tcp_mesh *mesh, struct fsdp_err *err)
{
    for (int i = 0; i < mesh->n; i++) {
        struct conn *c = &mesh->conns[i];
        struct comm_call call;

        if (c->fd < 0 || wants_in(c) ||
            recv(c->fd, &call, sizeof call, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof call ||
            call.kind != COMM_GONE)
            continue;
        (void)recv(c->fd, &call, sizeof call, 0);
        (void)peer_left(mesh, i, err);
        return true;
    }
    return false;
}

/*
 * Moves what can be moved on the connection to `node`. Compares the node's call as soon as all of it has
 * come.
 */
static enum fsdp_status serve(struct tcp_mesh *mesh, int node, short revents, struct fsdp_err *err)
{
    struct conn *c = &mesh->conns[node];
    const bool call_was_here = c->call_in_at == sizeof c->call_in;
    bool alive = true;

    /* Reading comes first: what the other end sent before it went away may explain why it did. */
    if (wants_in(c) && (revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        alive = receive_some(mesh, c);
    if (!call_was_here && c->call_in_at == sizeof c->call_in && c->call_in.kind == COMM_GONE)
        return peer_left(mesh, node, err);
    if (!call_was_here && c->call_in_at == sizeof c->call_in) {
        OK_OR_RETURN(
            comm_call_compare(&mesh->call, rank_of(mesh, mesh->self), &c->call_in, rank_of(mesh, node), err));
    }
    if (alive && wants_out(c) && (revents & (POLLOUT | POLLHUP | POLLERR)) != 0)
        alive = send_some(c);
    return alive ? FSDP_OK : peer_gone(mesh, node, errno != 0 ? strerror(errno) : "it was closed", err);
}

/*
 * Looks for the words of a node that left, after a connection to another node broke:
 *   1. Node A gives up and sends its words to nodes B and C.
 *   2. B reads them first, and breaks its connections.
 *   3. C sees that B's connection is broken. A's words are still on their way to C.
 * So C reads for HEAR_OUT_MS from the nodes whose call has not come yet, as long as one of them is connected.
 * If a node has left, its words replace those in `err`.
 */
static void hear_out(struct tcp_mesh *mesh, struct fsdp_err *err)
{
    static const struct timespec slice = { .tv_nsec = WATCH_SLICE_MS * 1000000L };
    bool pending = true;

    for (int waited_ms = 0; pending && waited_ms < HEAR_OUT_MS; waited_ms += WATCH_SLICE_MS) {
        pending = false;
        for (int i = 0; i < mesh->n; i++) {
            struct conn *c = &mesh->conns[i];

            if (c->fd < 0 || c->call_in_at == sizeof c->call_in || !receive_some(mesh, c))
                continue;
            if (c->call_in_at == sizeof c->call_in && c->call_in.kind == COMM_GONE) {
                (void)peer_left(mesh, i, err);
                return;
            }
            pending = true;
        }
        if (pending && watch_check(mesh->watch, NULL) == FSDP_OK)
            nanosleep(&slice, NULL);
    }
}

/*
 * Serves every connection that has something before it returns an error. `err` gets the failure that says
 * most: a mismatch, else the words of a node that left, else how a connection broke.
 */
static enum fsdp_status serve_all(struct tcp_mesh *mesh, struct fsdp_err *err)
{
    enum { NOTHING, BROKEN, LEFT, MISMATCH };
    enum fsdp_status status = FSDP_OK;
    int said = NOTHING;

    for (int i = 0; i < mesh->n; i++) {
        const struct conn *c = &mesh->conns[i];
        struct fsdp_err words = { 0 };
        enum fsdp_status one = FSDP_OK;
        int says;

        if (mesh->polls[i].fd >= 0 && mesh->polls[i].revents != 0)
            one = serve(mesh, i, mesh->polls[i].revents, &words);
        says = one == FSDP_OK                 ? NOTHING
               : one == FSDP_ERR_MISMATCH     ? MISMATCH
               : c->call_in.kind == COMM_GONE ? LEFT
                                              : BROKEN;
        if (says <= said)
            continue;
        said = says;
        status = fsdp_fail(err, one, "%s", words.message);
    }
    return status;
}

enum fsdp_status tcp_exchange(struct tcp_mesh *mesh, bool flush, struct fsdp_err *err)
{
    for (;;) {
        enum fsdp_status status = FSDP_OK;
        bool done = true;
        int n_ready;

        for (int i = 0; i < mesh->n; i++) {
            const struct conn *c = &mesh->conns[i];
            const bool in = wants_in(c), out = wants_out(c);

            mesh->polls[i] = (struct pollfd){ .fd = in || out ? c->fd : -1,
                                              .events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0)) };
            done = done && !in && !(flush && out);
        }
        if (done)
            return FSDP_OK;
        n_ready = poll(mesh->polls, (nfds_t)mesh->n, WATCH_SLICE_MS);
        if (n_ready == 0)
            status = check_idle(mesh, err);
        if (n_ready > 0)
            status = serve_all(mesh, err);
        if (status == FSDP_ERR_PEER)
            hear_out(mesh, err);
        if (status != FSDP_OK) {
            tcp_fail(mesh);
            return status;
        }
    }
}

void tcp_enter(struct tcp_mesh *mesh, const struct comm_call *call)
{
    mesh->call = *call;
    for (int i = 0; i < mesh->n; i++) {
        struct conn *c = &mesh->conns[i];

        c->call_out = *call;
        c->call_out_at = c->call_in_at = 0;
        /*
         * Sent before this rank waits for anything. Ranks that call different collectives may wait for each
         * other in a circle, over rails and through shared memory; this way at least one of them notices.
         * What cannot be sent now is sent, or fails, in the next exchange.
         */
        if (c->fd >= 0)
            (void)send_some(c);
    }
}

enum fsdp_status tcp_leave(struct tcp_mesh *mesh, struct fsdp_err *err)
{
    return tcp_exchange(mesh, true, err);
}
