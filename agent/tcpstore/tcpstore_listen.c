#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "agent/tcpstore/tcpstore_impl.h"

enum { PORT_TRIES = 16 };

static void set_port(struct sockaddr_storage *address, int port)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
}

static int get_port(int fd)
{
    struct sockaddr_storage address = { 0 };
    socklen_t size = sizeof address;

    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the kernel filled in the port of either family */
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* A socket that listens at the address, or -1 and errno. */
static int open_listener(const struct sockaddr_storage *address, socklen_t size)
{
    const int on = 1;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;

    if (fd < 0)
        return -1;
    /* Connections of the last generation may be in TIME_WAIT on this port. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)address, size) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static void close_listeners(struct tcpstore *store)
{
    for (int i = 0; i < store->n_listeners; i++)
        close(store->listeners[i].fd);
    store->n_listeners = 0;
}

static bool listens_at(const struct tcpstore *store, const struct sockaddr_storage *address)
{
    for (int i = 0; i < store->n_listeners; i++) {
        struct sockaddr_storage own = { 0 };
        socklen_t size = sizeof own;

        if (getsockname(store->listeners[i].fd, (struct sockaddr *)&own, &size) == 0 &&
            tcpstore_same_address(&own, address))
            return true;
    }
    return false;
}

/*
 * Listen at every address of the list that this host has, on store->port. If that is 0, the first listener
 * chooses a port. Returns 0 or an errno.
 */
static int add_listeners(struct tcpstore *store, const struct addrinfo *list)
{
    for (const struct addrinfo *at = list; at != NULL && store->n_listeners < TCPSTORE_MAX_LISTENERS;
         at = at->ai_next) {
        struct sockaddr_storage address = { 0 };
        int fd;

        memcpy(&address, at->ai_addr, at->ai_addrlen);
        if (listens_at(store, &address))
            continue;
        set_port(&address, store->port);
        fd = open_listener(&address, at->ai_addrlen);
        if (fd >= 0) {
            store->listeners[store->n_listeners++].fd = fd;
            store->port = store->port != 0 ? store->port : get_port(fd);
        } else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) {
            return errno;
        }
    }
    return 0;
}

/* Listen at both lists, on one port. Returns 0, or an errno with nothing open. */
static int open_listeners(struct tcpstore *store, const struct addrinfo *const lists[2],
                          const struct tcpstore_config *config)
{
    int error;

    store->port = config->port;
    error = add_listeners(store, lists[0]);
    if (error == 0 && store->n_listeners == 0)
        error = EADDRNOTAVAIL; /* the name belongs to another host */
    if (error == 0)
        error = add_listeners(store, lists[1]);
    if (error == 0 && config->port == 0 && store->port == config->other_than)
        error = EADDRINUSE;
    if (error != 0)
        close_listeners(store);
    return error;
}

enum fsdp_status tcpstore_listen(struct tcpstore *store, const struct tcpstore_config *config,
                                 struct fsdp_err *err)
{
    const struct addrinfo *lists[2] = { config->at, config->also };
    int error = EADDRINUSE;

    /*
     * If any port will do, one that is free at the first address may be taken at the next: try again with
     * another port.
     */
    for (int i = 0; error == EADDRINUSE && i < (config->port != 0 ? 1 : PORT_TRIES); i++)
        error = open_listeners(store, lists, config);
    if (error == 0)
        return FSDP_OK;
    if (error == EADDRINUSE && config->port != 0)
        return fsdp_fail(
            err, FSDP_ERR_BUSY,
            "the key-value store cannot listen on %s: port %d is in use (another one: --master-port, or "
            "none of them for a free one)",
            config->host, config->port);
    return fsdp_fail(err, FSDP_ERR_IO, "the key-value store cannot listen on %s, port %d: %s", config->host,
                     config->port, strerror(error));
}
