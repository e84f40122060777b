#include "agent/doctor/pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "agent/wire/endpoint.h"
#include "agent/wire/little_endian.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/thread.h"

/*
 * After the secret and the number of its node, the client asks, one request after another:
 *   P        the server answers with its time of day, 8 bytes of microseconds
 *   S n      n bytes follow; the server answers with a byte when it has them
 *   R n      the server answers with n bytes
 * Numbers are little-endian, n has 8 bytes.
 */
enum {
    HEAD_BYTES = PAIRS_SECRET_BYTES + 4,
    REQUEST_BYTES = 9,
    CHUNK_BYTES = 1 << 18,
    N_PINGS = 31,
    OPEN_WITHIN_S = 2, /* for the secret: a stranger blocks the server for no longer */
    ANSWER_WITHIN_S = 5,
    CONNECT_WITHIN_MS = 3000,
};
static const uint64_t first_bytes = 1 << 20, most_bytes = 256 << 20;
static const double measure_s = 0.15;

int pairs_rounds(int n_nodes)
{
    const int all = n_nodes % 2 == 0 ? n_nodes - 1 : n_nodes;

    return n_nodes < 2 ? 0 : all < PAIRS_MOST_ROUNDS ? all : PAIRS_MOST_ROUNDS;
}

/* The circle method: one node keeps its place, and all others move by one place in each round. */
int pairs_partner(int n_nodes, int round, int node)
{
    /* for an odd number of nodes, one more is added that stands for "no partner" */
    const int n = n_nodes + n_nodes % 2, m = n - 1;
    int partner;

    if (node == m)
        /*
         * solves 2 p = round (mod m): node p would be its own partner, so it meets the node that keeps its
         * place
         */
        partner = round % m * (m / 2 + 1) % m;
    else
        partner = ((round - node) % m + m) % m;
    if (partner == node)
        partner = m;
    return partner < n_nodes ? partner : -1;
}

/* Both ends. */

static void bound(int fd, int seconds)
{
    const struct timeval within = { .tv_sec = seconds };
    const int on = 1;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof within);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &within, sizeof within);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static bool send_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        const ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);

        if (sent <= 0 && !(sent < 0 && errno == EINTR))
            return false;
        at += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool receive_all(int fd, void *bytes, size_t n)
{
    char *at = bytes;

    errno = 0;
    while (n > 0) {
        const ssize_t got = recv(fd, at, n, 0);

        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

/*
 * Sends, or receives, `n` bytes. Their content does not matter, so one block of memory is used again and
 * again.
 */
static bool stream(int fd, bool sends, char *chunk, uint64_t n)
{
    while (n > 0) {
        const size_t some = n < CHUNK_BYTES ? (size_t)n : CHUNK_BYTES;

        if (!(sends ? send_all(fd, chunk, some) : receive_all(fd, chunk, some)))
            return false;
        n -= some;
    }
    return true;
}

/* The server. */

struct pairs_server {
    unsigned char secret[PAIRS_SECRET_BYTES];
    int fd, n_nodes;
    char *chunk;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool *served; /* (n_nodes) whether the connection of that node has come and ended */
};

static bool answer(const struct pairs_server *server, int fd, const unsigned char request[REQUEST_BYTES])
{
    const uint64_t n = get_le(request + 1, 8);
    unsigned char time[8];

    switch (request[0]) {
    case 'P':
        put_le(time, (uint64_t)clock_epoch_us(), 8);
        return send_all(fd, time, sizeof time);
    case 'S':
        return n <= most_bytes && stream(fd, false, server->chunk, n) && send_all(fd, "", 1);
    case 'R':
        return n <= most_bytes && stream(fd, true, server->chunk, n);
    default:
        return false;
    }
}

static void serve_one(struct pairs_server *server, int fd)
{
    unsigned char head[HEAD_BYTES], request[REQUEST_BYTES];
    uint64_t node;

    bound(fd, OPEN_WITHIN_S);
    if (!receive_all(fd, head, sizeof head) || memcmp(head, server->secret, PAIRS_SECRET_BYTES) != 0)
        return;
    node = get_le(head + PAIRS_SECRET_BYTES, 4);
    bound(fd, ANSWER_WITHIN_S);
    while (receive_all(fd, request, sizeof request) && answer(server, fd, request))
        ;
    pthread_mutex_lock(&server->mutex);
    if (node < (uint64_t)server->n_nodes)
        server->served[node] = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

static void *serve(void *arg)
{
    struct pairs_server *server = arg;

    for (;;) {
        const int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);

        if (fd >= 0) {
            serve_one(server, fd);
            close(fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
            poll(NULL, 0, 100); /* until a descriptor is free */
        }
    }
    return NULL;
}

/* Returns a socket that listens at a free port, or -1 with errno. */
static int listen_for(const char *host, int *port)
{
    struct endpoint_addresses addresses;
    struct sockaddr_storage bound_to;
    socklen_t size = sizeof bound_to;
    int fd = -1;

    endpoint_wildcard(&addresses, 0);
    if (endpoint_is_loopback(host)) {
        addresses.n = 1;
        if (strchr(host, ':') != NULL)
            uv_ip6_addr("::1", 0, (struct sockaddr_in6 *)(void *)&addresses.of[0]);
        else
            uv_ip4_addr("127.0.0.1", 0, (struct sockaddr_in *)(void *)&addresses.of[0]);
    }
    for (int i = 0; i < addresses.n && fd < 0; i++) {
        const struct sockaddr *address = (const struct sockaddr *)&addresses.of[i];
        const int off = 0;

        fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && address->sa_family == AF_INET6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (fd >= 0 && (bind(fd, address,
                             address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                            : sizeof(struct sockaddr_in)) < 0 ||
                        listen(fd, 64) < 0 || getsockname(fd, (struct sockaddr *)&bound_to, &size) < 0)) {
            close(fd);
            fd = -1;
        }
    }
    if (fd >= 0)
        *port = ntohs(bound_to.ss_family == AF_INET6
                          ? ((const struct sockaddr_in6 *)(const void *)&bound_to)->sin6_port
                          : ((const struct sockaddr_in *)(const void *)&bound_to)->sin_port);
    return fd;
}

enum fsdp_status pairs_serve(struct pairs_server **out, const char *address,
                             const unsigned char secret[PAIRS_SECRET_BYTES], int n_nodes, int *port,
                             struct fsdp_err *err)
{
    struct pairs_server *server = calloc(1, sizeof *server);
    enum fsdp_status status = FSDP_OK;
    pthread_condattr_t attributes;

    *out = NULL;
    if (server == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to serve other nodes");
    memcpy(server->secret, secret, PAIRS_SECRET_BYTES);
    server->n_nodes = n_nodes;
    server->served = calloc((size_t)n_nodes, sizeof *server->served);
    server->chunk = calloc(1, CHUNK_BYTES);
    server->fd = listen_for(address, port);
    pthread_mutex_init(&server->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (server->served == NULL || server->chunk == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to serve other nodes");
    else if (server->fd < 0)
        status = fsdp_fail(err, FSDP_ERR_IO, "listening for other nodes: %s", strerror(errno));
    else if ((errno = thread_start(NULL, serve, server)) != 0)
        status = fsdp_fail(err, FSDP_ERR_IO, "a thread to serve other nodes: %s", strerror(errno));
    if (status == FSDP_OK) {
        *out = server; /* never freed: the thread uses it until the process ends */
        return FSDP_OK;
    }
    if (server->fd >= 0)
        close(server->fd);
    free(server->served);
    free(server->chunk);
    free(server);
    return status;
}

bool pairs_await(struct pairs_server *server, int node, int64_t within_ms)
{
    const int64_t until_ms = clock_now_ms() + within_ms;
    const struct timespec until = { .tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000 };
    bool served;

    pthread_mutex_lock(&server->mutex);
    while (!server->served[node] && pthread_cond_timedwait(&server->changed, &server->mutex, &until) == 0)
        ;
    served = server->served[node];
    pthread_mutex_unlock(&server->mutex);
    return served;
}

/* The client. */

static bool ask(int fd, char what, uint64_t n)
{
    unsigned char request[REQUEST_BYTES] = { (unsigned char)what };

    put_le(request + 1, n, 8);
    return send_all(fd, request, sizeof request);
}

/*
 * Measures round trips and the difference of the clocks. The shortest round trip was delayed least, so the
 * other clock was read about in its middle.
 */
static bool ping(struct pair *pair, int fd)
{
    pair->round_trip_ns = INT64_MAX;
    for (int i = 0; i < N_PINGS; i++) {
        const int64_t began_ns = clock_now_ns(), began_us = clock_epoch_us();
        unsigned char time[8];
        int64_t took_ns;

        if (!ask(fd, 'P', 0) || !receive_all(fd, time, sizeof time))
            return false;
        took_ns = clock_now_ns() - began_ns;
        if (took_ns >= pair->round_trip_ns)
            continue;
        pair->round_trip_ns = took_ns;
        pair->clock_us = (int64_t)get_le(time, 8) - (began_us + took_ns / 2000);
    }
    return true;
}

/* Send `n` bytes, or let the other end send them. Returns bytes per second; 0: it failed. */
static double move(int fd, bool sends, char *chunk, uint64_t n)
{
    const int64_t began_ns = clock_now_ns();
    char last;

    if (!ask(fd, sends ? 'S' : 'R', n) || !stream(fd, sends, chunk, n) ||
        (sends && !receive_all(fd, &last, 1)))
        return 0.0;
    return (double)n / ((double)(clock_now_ns() - began_ns + 1) / 1e9);
}

static bool measure(struct pair *pair, int fd, char *chunk)
{
    uint64_t n = first_bytes;

    if (!ping(pair, fd))
        return false;
    pair->forth = move(fd, true, chunk, n);
    if (pair->forth * measure_s > (double)n) /* a fast connection is measured again with more bytes */
        n = pair->forth * measure_s > (double)most_bytes ? most_bytes : (uint64_t)(pair->forth * measure_s);
    if (n > first_bytes)
        pair->forth = move(fd, true, chunk, n);
    if (pair->forth > 0.0)
        pair->back = move(fd, false, chunk, n);
    return pair->forth > 0.0 && pair->back > 0.0;
}

/* Returns 0 when connected, or an errno. */
static int connect_to(int fd, const struct addrinfo *at)
{
    struct pollfd writable = { .fd = fd, .events = POLLOUT };
    socklen_t size = sizeof(int);
    int error = 0;

    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    if (poll(&writable, 1, CONNECT_WITHIN_MS) <= 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? errno : error;
}

/* Connects to the address. Returns a socket, or -1 with the reason in `words`. */
static int reach(const char *host, int port, char words[PAIRS_WORDS_BYTES])
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    int error, fd = -1;
    char service[16];

    snprintf(service, sizeof service, "%d", port);
    error = getaddrinfo(host, service, &hints, &found);
    if (error != 0)
        snprintf(words, PAIRS_WORDS_BYTES, "%.60s: %s", host, gai_strerror(error));
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        error = fd < 0 ? errno : connect_to(fd, at);
        if (error == 0)
            break;
        snprintf(words, PAIRS_WORDS_BYTES, "%.60s: %s", host, strerror(error));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    if (found != NULL)
        freeaddrinfo(found);
    if (fd >= 0)
        fcntl(fd, F_SETFL, 0); /* blocking, with bounds */
    return fd;
}

void pairs_measure(struct pair *pair, const char *host, int port,
                   const unsigned char secret[PAIRS_SECRET_BYTES], int node)
{
    unsigned char head[HEAD_BYTES];
    char *chunk = calloc(1, CHUNK_BYTES), words[PAIRS_WORDS_BYTES] = "no memory";
    const int a = pair->a, b = pair->b, fd = chunk != NULL ? reach(host, port, words) : -1;
    bool measured = false;

    memcpy(head, secret, PAIRS_SECRET_BYTES);
    put_le(head + PAIRS_SECRET_BYTES, (uint64_t)node, 4);
    if (fd >= 0) {
        bound(fd, ANSWER_WITHIN_S);
        errno = 0;
        measured = send_all(fd, head, sizeof head) && measure(pair, fd, chunk);
        if (!measured)
            snprintf(words, sizeof words, "%.60s: %s", host,
                     errno == EAGAIN ? "no answer in 5 s"
                     : errno != 0    ? strerror(errno)
                                     : "it closed");
        close(fd);
    }
    free(chunk);
    pair->error[0] = '\0';
    if (measured)
        return;
    *pair = (struct pair){ .a = a, .b = b };
    snprintf(pair->error, sizeof pair->error, "%s", words);
}
