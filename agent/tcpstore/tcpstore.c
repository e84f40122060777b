#include "agent/tcpstore/tcpstore.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/tcpstore/tcpstore_impl.h"

enum {
    ACCEPT_BATCH = 64, /* connections accepted before the loop serves other handles */
    PAUSE_MS = 100,    /* pause after accept() found no free descriptor */
    WORDS_BYTES = 700,
    NAME_BYTES = 64
};

/* Refusals */

void tcpstore_refuse(struct tcpstore *store, enum tcpstore_refusal kind, const char *format, ...)
{
    char words[WORDS_BYTES];
    va_list args;

    if (store->n_refused[kind]++ > 0 || store->say == NULL)
        return;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    store->say(store->say_arg, words);
}

static void name_of(const struct sockaddr_storage *address, char name[NAME_BYTES])
{
    if (uv_ip_name((const struct sockaddr *)address, name, NAME_BYTES) != 0)
        snprintf(name, NAME_BYTES, "?");
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    static const struct in6_addr one = IN6ADDR_LOOPBACK_INIT;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;

    if (address->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return address->ss_family == AF_INET6 && memcmp(&in6->sin6_addr, &one, sizeof one) == 0;
}

static bool is_within_host(const struct tcpstore *store, const struct tcpstore_connection *connection)
{
    return is_loopback(&connection->peer) || tcpstore_same_address(&connection->peer, &connection->own) ||
           tcpstore_addresses_have(&store->own, (const struct sockaddr *)&connection->peer);
}

static bool is_welcome(struct tcpstore *store, const struct tcpstore_connection *connection)
{
    char name[NAME_BYTES];

    name_of(&connection->peer, name);
    if (!is_within_host(store, connection)) {
        if (tcpstore_addresses_have(&store->nodes, (const struct sockaddr *)&connection->peer))
            return true;
        tcpstore_refuse(store, TCPSTORE_REFUSED_ADDRESS,
                        "the key-value store refused a connection from %s, which is no node of this job",
                        name);
        return false;
    }
    if (!connection->found) {
        tcpstore_refuse(store, TCPSTORE_REFUSED_USER,
                        "the key-value store refused a connection whose owner cannot be told");
        return false;
    }
    if (connection->uid == geteuid())
        return true;
    tcpstore_refuse(store, TCPSTORE_REFUSED_USER,
                    "the key-value store refused a connection of another user (uid %u)",
                    (unsigned)connection->uid);
    return false;
}

/* Connections */

struct arrivals {
    int fds[ACCEPT_BATCH];
    struct tcpstore_connection connections[ACCEPT_BATCH];
    size_t n;
};

/*
 * Is this errno of accept(2) about one connection only? After any other error, the next call would fail the
 * same way.
 */
static bool is_of_one(int error)
{
    switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case EPERM: /* a firewall refused it */
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ETIMEDOUT:
        return true;
    default:
        return false;
    }
}

/*
 * Accept connections, and read both addresses of each. Returns false, with errno, if no more can be accepted
 * now.
 */
static bool take_arrivals(int listener, struct arrivals *arrivals)
{
    while (arrivals->n < ACCEPT_BATCH) {
        struct tcpstore_connection *connection = &arrivals->connections[arrivals->n];
        socklen_t peer_size = sizeof connection->peer, own_size = sizeof connection->own;
        int fd;

        memset(connection, 0, sizeof *connection);
        fd =
            accept4(listener, (struct sockaddr *)&connection->peer, &peer_size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EAGAIN)
                return true;
            if (!is_of_one(errno))
                return false;
            continue; /* it was closed before it was accepted */
        }
        if (getsockname(fd, (struct sockaddr *)&connection->own, &own_size) != 0)
            close(fd);
        else
            arrivals->fds[arrivals->n++] = fd;
    }
    return true;
}

static void judge_arrivals(struct tcpstore *store, struct arrivals *arrivals)
{
    struct fsdp_err err = { 0 };

    if (arrivals->n > 0 &&
        tcpstore_owners_find(&store->owners, arrivals->connections, arrivals->n, &err) != FSDP_OK)
        tcpstore_refuse(store, TCPSTORE_REFUSED_USER,
                        "the key-value store cannot tell whose connections come: %s", err.message);
    for (size_t i = 0; i < arrivals->n; i++) {
        const struct tcpstore_connection *connection = &arrivals->connections[i];

        if (!is_welcome(store, connection)) {
            close(arrivals->fds[i]);
            continue;
        }
        /*
         * The client still waits for its first answer, so it still has its socket open, and the owner of the
         * socket can be found.
         */
        if (store->came != NULL)
            store->came(store->say_arg, &connection->peer,
                        is_within_host(store, connection) ? connection->inode : 0);
        tcpstore_client_begin(store, arrivals->fds[i]);
    }
}

static void listen_on(struct tcpstore *store);

static void on_paused(uv_timer_t *timer)
{
    listen_on(timer->data);
}

/* Stops listening for PAUSE_MS. A listener that cannot accept stays readable, so the loop would spin. */
static void pause_listening(struct tcpstore *store, int error)
{
    tcpstore_refuse(store, TCPSTORE_REFUSED_DESCRIPTORS,
                    "the key-value store cannot take more connections (%s); they wait", strerror(error));
    for (int i = 0; i < store->n_listeners; i++)
        uv_poll_stop(&store->listeners[i].poll);
    uv_timer_start(&store->pause, on_paused, PAUSE_MS, 0);
}

static void on_arrivals(uv_poll_t *poll, int status, int events)
{
    struct tcpstore *store = poll->data;
    struct arrivals arrivals;
    int error = 0;

    (void)events;
    arrivals.n = 0;
    for (int i = 0; status == 0 && i < store->n_listeners; i++)
        if (&store->listeners[i].poll == poll && !take_arrivals(store->listeners[i].fd, &arrivals))
            error = errno;
    judge_arrivals(store, &arrivals);
    if (error != 0)
        pause_listening(store, error);
}

static void listen_on(struct tcpstore *store)
{
    for (int i = 0; i < store->n_listeners; i++)
        uv_poll_start(&store->listeners[i].poll, UV_READABLE, on_arrivals);
}

/* Addresses of nodes */

static bool read_address(const char *text, struct sockaddr_storage *address)
{
    memset(address, 0, sizeof *address);
    return uv_ip4_addr(text, 0, (struct sockaddr_in *)address) == 0 ||
           uv_ip6_addr(text, 0, (struct sockaddr_in6 *)address) == 0;
}

static bool know_nodes(struct tcpstore *store, const struct tcpstore_config *config)
{
    struct sockaddr_storage address;

    for (size_t i = 0; i < config->n_nodes; i++)
        if (read_address(config->nodes[i], &address) &&
            !tcpstore_addresses_add(&store->nodes, (const struct sockaddr *)&address))
            return false;
    return true;
}

/*
 * Look up the addresses of this host. A connection from one of them comes from this host; it is judged by the
 * user that owns its socket, not by its address.
 */
static bool know_ourselves(struct tcpstore *store)
{
    struct ifaddrs *list = NULL;
    bool known = true;

    if (store->nodes.table.n_entries == 0)
        return true;
    if (getifaddrs(&list) != 0)
        return false;
    for (const struct ifaddrs *at = list; known && at != NULL; at = at->ifa_next)
        known = at->ifa_addr == NULL || tcpstore_addresses_add(&store->own, at->ifa_addr);
    freeifaddrs(list);
    return known;
}

/* Opening and closing the store */

static void destroy(struct tcpstore *store)
{
    tcpstore_keys_destroy(store->keys);
    tcpstore_owners_close(&store->owners);
    tcpstore_addresses_fini(&store->nodes);
    tcpstore_addresses_fini(&store->own);
    free(store);
}

void tcpstore_handle_closed(struct tcpstore *store)
{
    if (--store->n_handles == 0)
        destroy(store);
}

static void on_handle_closed(uv_handle_t *handle)
{
    tcpstore_handle_closed(handle->data);
}

/* Watch all listeners. After a failure, the loop closes the watched ones, and the others are closed here. */
static enum fsdp_status watch_listeners(struct tcpstore *store, struct fsdp_err *err)
{
    const int n = store->n_listeners;
    int error = 0, i;

    for (i = 0; i < n; i++) {
        error = uv_poll_init(store->loop, &store->listeners[i].poll, store->listeners[i].fd);
        if (error != 0)
            break;
        store->listeners[i].poll.data = store;
        store->n_handles++;
    }
    if (error == 0)
        return FSDP_OK;
    store->n_listeners = i;
    for (; i < n; i++)
        close(store->listeners[i].fd);
    return fsdp_fail(err, FSDP_ERR_IO, "the key-value store cannot watch its socket: %s", uv_strerror(error));
}

enum fsdp_status tcpstore_open(struct tcpstore **out, uv_loop_t *loop, const struct tcpstore_config *config,
                               struct fsdp_err *err)
{
    struct tcpstore *store = malloc(sizeof *store);
    enum fsdp_status status;

    *out = NULL;
    if (store == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    /* all of the store except its large buffer, whose pages take memory only when they are used */
    memset(store, 0, offsetof(struct tcpstore, buffer));
    store->loop = loop;
    store->changed_ms = uv_now(loop);
    store->say = config->say;
    store->came = config->came;
    store->say_arg = config->arg;
    tcpstore_owners_open(&store->owners);
    store->keys = tcpstore_keys_create(TCPSTORE_MAX_KEPT_BYTES, tcpstore_client_woken, store);
    if (store->keys == NULL || !know_nodes(store, config) || !know_ourselves(store))
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    else
        status = tcpstore_listen(store, config, err);
    if (status != FSDP_OK) {
        destroy(store);
        return status;
    }
    uv_timer_init(loop, &store->pause);
    store->pause.data = store;
    store->n_handles = 1;
    status = watch_listeners(store, err);
    if (status != FSDP_OK) {
        tcpstore_close(store);
        return status;
    }
    listen_on(store);
    *out = store;
    return FSDP_OK;
}

int64_t tcpstore_idle_ms(const struct tcpstore *store)
{
    return (int64_t)(uv_now(store->loop) - store->changed_ms);
}

int tcpstore_port(const struct tcpstore *store)
{
    return store->port;
}

/* Print how many connections were refused, if more were refused than lines were printed. */
static void say_counts(struct tcpstore *store)
{
    char words[WORDS_BYTES];
    uint64_t n = 0;

    for (int i = 0; i < TCPSTORE_REFUSALS; i++)
        if (i != TCPSTORE_REFUSED_DESCRIPTORS && store->n_refused[i] > 1)
            n += store->n_refused[i];
    if (n == 0 || store->say == NULL)
        return;
    snprintf(words, sizeof words, "the key-value store refused or closed %llu connections in all",
             (unsigned long long)n);
    store->say(store->say_arg, words);
}

void tcpstore_close(struct tcpstore *store)
{
    if (store == NULL)
        return;
    say_counts(store);
    store->say = NULL;
    store->closing = true;
    while (store->clients != NULL)
        tcpstore_client_close(store->clients);
    for (int i = 0; i < store->n_listeners; i++) {
        uv_close((uv_handle_t *)&store->listeners[i].poll, on_handle_closed);
        close(store->listeners[i].fd);
    }
    store->n_listeners = 0;
    uv_close((uv_handle_t *)&store->pause, on_handle_closed);
}
