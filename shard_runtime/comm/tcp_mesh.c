#include "shard_runtime/comm/tcp_mesh.h"

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

#include "shard_runtime/comm/reduce.h"
#include "shard_runtime/comm/tcp_open.h"

/* Bytes a system call moves at most, and of a chunk that is summed at a time. */
enum { CALL_BYTES = 256 << 10, CHUNK_BYTES = 256 << 10 };

/* Up to this size every node sends everything to all and sums it all: one exchange in place of two. */
enum { SMALL_BYTES = 16 << 10 };

/* A connection on which data is under way and nothing at all comes back for so long is cut. */
enum { CUT_MS = 2500 };

/* What a rank that gives up sends in place of its next call. The words come with it, or are not waited for any longer. */
struct last_words {
    struct comm_call call; /* COMM_GONE */
    char words[FSDP_ERR_MESSAGE_BYTES];
};
enum { LAST_WORDS_MS = 1000, HEAR_OUT_MS = 200 };

struct conn {
    int fd; /* -1: this node itself */
    struct comm_call call_out, call_in;
    size_t call_out_at, call_in_at; /* bytes of the calls that have gone and come; whole: nothing to do */
    const char *out;
    size_t out_left;
    char *in;
    size_t in_left;
};

struct tcp_mesh {
    struct watch *watch;
    int n, self, rail, rails;
    struct comm_call call;
    struct conn *conns;   /* (n) */
    struct pollfd *polls; /* (n) */
    const void **sources; /* (n) */
    char *staging;        /* (n, CHUNK_BYTES): a chunk of each node, while it is summed */
};

static int rank_of(const struct tcp_mesh *mesh, int node)
{
    return node * mesh->rails + mesh->rail;
}

/* --- opening --------------------------------------------------------------------------------------------- */

size_t tcp_staging_bytes(int n)
{
    return (size_t)n * CHUNK_BYTES;
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
        mesh->staging = malloc(n * CHUNK_BYTES);
    }
    if (fds == NULL || mesh == NULL || mesh->conns == NULL || mesh->polls == NULL || mesh->sources == NULL ||
        mesh->staging == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "connections to %d nodes", config->n);
        goto done;
    }
    memset(mesh->staging, 0, n * CHUNK_BYTES); /* touched now, not in the first collective */
    mesh->watch = config->watch;
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

        /* In the middle of something there is no place for words. There is room for them otherwise: all before is taken. */
        if (c->fd >= 0 && c->call_out_at == sizeof c->call_out && c->out_left == 0)
            (void)send(c->fd, &last, sizeof last, MSG_NOSIGNAL);
    }
    for (int i = 0; i < mesh->n; i++)
        if (mesh->conns[i].fd >= 0)
            shutdown(mesh->conns[i].fd,
                     SHUT_WR); /* what the others still send is no reason to reset: words would be lost */
}

/* --- the exchange ---------------------------------------------------------------------------------------- */

static enum fsdp_status peer_gone(const struct tcp_mesh *mesh, int node, const char *why,
                                  struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_PEER, "the connection to rank %d is broken: %s", rank_of(mesh, node), why);
}

/* true: `*moved` bytes went or came (0: not now). false: the connection is broken, errno says how (0: closed). */
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

static bool receive_some(struct conn *c)
{
    size_t n;

    if (c->call_in_at < sizeof c->call_in) {
        if (!moved(recv(c->fd, (char *)&c->call_in + c->call_in_at, sizeof c->call_in - c->call_in_at, 0),
                   &n))
            return false;
        c->call_in_at += n;
        return true; /* data is not taken before the call has been compared */
    }
    if (!moved(recv(c->fd, c->in, c->in_left < CALL_BYTES ? c->in_left : CALL_BYTES, 0), &n))
        return false;
    c->in += n;
    c->in_left -= n;
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
 * Is nobody there any more? Either sent data has waited for its acknowledgement, or two probes of a full window have
 * gone unanswered, and nothing was heard for CUT_MS. A stopped process is no such case: its system still answers.
 */
static bool is_cut(const struct conn *c)
{
    struct tcp_info info;
    socklen_t length = sizeof info;

    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0)
        return false;
    return (info.tcpi_unacked > 0 || info.tcpi_probes >= 2) && info.tcpi_last_ack_recv > CUT_MS &&
           info.tcpi_last_data_recv > CUT_MS;
}

/* Nothing moved for a moment: do we wait in vain? */
static enum fsdp_status check_idle(struct tcp_mesh *mesh, struct fsdp_err *err)
{
    for (int i = 0; i < mesh->n; i++)
        if ((wants_in(&mesh->conns[i]) || wants_out(&mesh->conns[i])) && is_cut(&mesh->conns[i]))
            return peer_gone(mesh, i, "no answer from its host", err);
    return watch_check(mesh->watch, err);
}

/* Its call says that it left: why it did is behind that. */
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

/* Move what can be moved on connection `node`. A call that has come whole is compared on the spot. */
static enum fsdp_status serve(struct tcp_mesh *mesh, int node, short revents, struct fsdp_err *err)
{
    struct conn *c = &mesh->conns[node];
    const bool call_was_here = c->call_in_at == sizeof c->call_in;
    bool alive = true;

    /* Read first: what the peer said before it went away may tell why it did. */
    if (wants_in(c) && (revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        alive = receive_some(c);
    if (!call_was_here && c->call_in_at == sizeof c->call_in && c->call_in.kind == COMM_GONE)
        return peer_left(mesh, node, err);
    if (!call_was_here && c->call_in_at == sizeof c->call_in) {
        enum fsdp_status status =
            comm_call_compare(&mesh->call, rank_of(mesh, mesh->self), &c->call_in, rank_of(mesh, node), err);

        if (status != FSDP_OK)
            return status;
    }
    if (alive && wants_out(c) && (revents & (POLLOUT | POLLHUP | POLLERR)) != 0)
        alive = send_some(c);
    return alive ? FSDP_OK : peer_gone(mesh, node, errno != 0 ? strerror(errno) : "it was closed", err);
}

/*
 * A connection broke. That may be because its end heard a third node leave, whose words are on their way here too: those that have
 * not sent their call yet are heard out for a moment. No longer than there are any: of a node that died nothing more comes.
 */
static void hear_out(struct tcp_mesh *mesh, struct fsdp_err *err)
{
    static const struct timespec slice = { .tv_nsec = WATCH_SLICE_MS * 1000000L };
    bool pending = true;

    for (int waited_ms = 0; pending && waited_ms < HEAR_OUT_MS; waited_ms += WATCH_SLICE_MS) {
        pending = false;
        for (int i = 0; i < mesh->n; i++) {
            struct conn *c = &mesh->conns[i];

            if (c->fd < 0 || c->call_in_at == sizeof c->call_in || !receive_some(c))
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
 * Move until all that is awaited has come and, if `flush`, all has gone. Without it what is left to send goes on in
 * the next exchange, while this rank sums what it has.
 */
static enum fsdp_status exchange(struct tcp_mesh *mesh, bool flush, struct fsdp_err *err)
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
        /* All are served before an error is returned: ranks at odds are better words than a broken connection. */
        for (int i = 0; i < mesh->n && n_ready > 0; i++) {
            struct fsdp_err words = { 0 };
            enum fsdp_status one = FSDP_OK;

            if (mesh->polls[i].fd >= 0 && mesh->polls[i].revents != 0)
                one = serve(mesh, i, mesh->polls[i].revents, &words);
            if (one != FSDP_OK && (status == FSDP_OK || one == FSDP_ERR_MISMATCH)) {
                fsdp_fail(err, one, "%s", words.message);
                status = one;
            }
        }
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
         * It goes before this rank waits for anything: of ranks at odds that wait in a circle, over rails and through
         * shared memory, at least one then finds out. What does not go now goes, or fails, in the next exchange.
         */
        if (c->fd >= 0)
            (void)send_some(c);
    }
}

enum fsdp_status tcp_leave(struct tcp_mesh *mesh, struct fsdp_err *err)
{
    return exchange(mesh, true, err);
}

static void plan_out(struct tcp_mesh *mesh, int node, const void *data, size_t bytes)
{
    mesh->conns[node].out = data;
    mesh->conns[node].out_left = node == mesh->self ? 0 : bytes;
}

static void plan_in(struct tcp_mesh *mesh, int node, void *data, size_t bytes)
{
    mesh->conns[node].in = data;
    mesh->conns[node].in_left = node == mesh->self ? 0 : bytes;
}

/* --- the steps ------------------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

enum fsdp_status tcp_gather(struct tcp_mesh *mesh, const void *send, void *recv, size_t stride, size_t bytes,
                            struct fsdp_err *err)
{
    for (int i = 0; i < mesh->n; i++) {
        plan_out(mesh, i, send, bytes);
        plan_in(mesh, i, (char *)recv + (size_t)i * stride, bytes);
    }
    return exchange(mesh, true, err);
}

/* Take chunk after chunk of (n_elems) from every node and sum it with `own` into `recv`. What goes out is planned. */
static enum fsdp_status reduce_incoming(struct tcp_mesh *mesh, const char *own, char *recv,
                                        enum fsdp_dtype out_dtype, size_t n_elems, enum fsdp_dtype dtype,
                                        enum fsdp_reduce_op op, int divisor, struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype), per_chunk = CHUNK_BYTES / size;
    enum fsdp_status status = FSDP_OK;

    for (size_t at = 0; at < n_elems && status == FSDP_OK; at += per_chunk) {
        const size_t n = least(n_elems - at, per_chunk);

        for (int i = 0; i < mesh->n; i++) {
            mesh->sources[i] = mesh->staging + (size_t)i * CHUNK_BYTES;
            plan_in(mesh, i, mesh->staging + (size_t)i * CHUNK_BYTES, n * size);
        }
        mesh->sources[mesh->self] = own + at * size;
        status = exchange(mesh, false, err);
        if (status == FSDP_OK)
            reduce_sources(recv + at * fsdp_dtype_size(out_dtype), out_dtype, mesh->sources, dtype, mesh->n,
                           n, op, divisor);
    }
    return status;
}

enum fsdp_status tcp_reduce_rows(struct tcp_mesh *mesh, const void *send, size_t stride, void *recv,
                                 enum fsdp_dtype out_dtype, size_t n_elems, enum fsdp_dtype dtype,
                                 enum fsdp_reduce_op op, int divisor, struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype);
    const char *rows = send;
    enum fsdp_status status;

    for (int i = 0; i < mesh->n; i++)
        plan_out(mesh, i, rows + (size_t)i * stride * size, n_elems * size);
    status = reduce_incoming(mesh, rows + (size_t)mesh->self * stride * size, recv, out_dtype, n_elems, dtype,
                             op, divisor, err);
    return status == FSDP_OK ? exchange(mesh, true, err) : status;
}

static enum fsdp_status reduce_small(struct tcp_mesh *mesh, void *buffer, size_t n_elems,
                                     enum fsdp_dtype dtype, enum fsdp_reduce_op op, int divisor,
                                     struct fsdp_err *err)
{
    const size_t bytes = n_elems * fsdp_dtype_size(dtype);
    enum fsdp_status status;

    for (int i = 0; i < mesh->n; i++) {
        mesh->sources[i] = mesh->staging + (size_t)i * CHUNK_BYTES;
        plan_out(mesh, i, buffer, bytes);
        plan_in(mesh, i, mesh->staging + (size_t)i * CHUNK_BYTES, bytes);
    }
    mesh->sources[mesh->self] = buffer;
    status = exchange(mesh, true, err); /* it is sent from what is then overwritten */
    if (status == FSDP_OK)
        reduce_sources(buffer, dtype, mesh->sources, dtype, mesh->n, n_elems, op, divisor);
    return status;
}

enum fsdp_status tcp_reduce_all(struct tcp_mesh *mesh, void *buffer, size_t n_elems, enum fsdp_dtype dtype,
                                enum fsdp_reduce_op op, int divisor, struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype), part = (n_elems + (size_t)mesh->n - 1) / (size_t)mesh->n;
    const size_t own_at = least((size_t)mesh->self * part, n_elems), own_n = least(part, n_elems - own_at);
    char *data = buffer, *own = data + own_at * size;
    enum fsdp_status status;

    if (n_elems * size <= SMALL_BYTES)
        return reduce_small(mesh, buffer, n_elems, dtype, op, divisor, err);
    for (int i = 0; i < mesh->n; i++) {
        const size_t at = least((size_t)i * part, n_elems);

        plan_out(mesh, i, data + at * size, least(part, n_elems - at) * size);
    }
    status = reduce_incoming(mesh, own, own, dtype, own_n, dtype, op, divisor, err);
    if (status == FSDP_OK)
        status = exchange(mesh, true, err); /* the parts of the others have gone: they may be overwritten */
    if (status != FSDP_OK)
        return status;
    for (int i = 0; i < mesh->n; i++) {
        const size_t at = least((size_t)i * part, n_elems);

        plan_out(mesh, i, own, own_n * size);
        plan_in(mesh, i, data + at * size, least(part, n_elems - at) * size);
    }
    return exchange(mesh, true, err);
}

enum fsdp_status tcp_spread(struct tcp_mesh *mesh, void *buffer, size_t bytes, int root, struct fsdp_err *err)
{
    for (int i = 0; i < mesh->n; i++) {
        plan_out(mesh, i, buffer, mesh->self == root ? bytes : 0);
        plan_in(mesh, i, buffer, i == root ? bytes : 0);
    }
    return exchange(mesh, true, err);
}
