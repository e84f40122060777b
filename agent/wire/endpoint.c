#include "agent/wire/endpoint.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static bool means_everyone(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (uv_inet_pton(AF_INET, host, &v4) == 0)
        return v4.s_addr == htonl(INADDR_ANY);
    return uv_inet_pton(AF_INET6, host, &v6) == 0 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

enum fsdp_status endpoint_init(struct endpoint *endpoint, const char *host, int port, struct fsdp_err *err)
{
    const size_t length = host == NULL ? 0 : strlen(host);
    const bool brackets = length > 1 && host[0] == '[' && host[length - 1] == ']';
    const size_t inner = brackets ? length - 2 : length;

    *endpoint = (struct endpoint){ .port = port };
    if (inner == 0 || inner >= sizeof endpoint->host || port <= 0 || port > 65535)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "several nodes need an endpoint to meet at: HOST:PORT");
    memcpy(endpoint->host, host + brackets, inner);
    if (means_everyone(endpoint->host))
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "no node can be met at %s: the endpoint must be an address all nodes can reach",
                         endpoint->host);
    return FSDP_OK;
}

const char *endpoint_text(char *out, const char *host, int port)
{
    snprintf(out, ENDPOINT_TEXT_BYTES, strchr(host, ':') != NULL ? "[%s]:%d" : "%s:%d", host, port);
    return out;
}

bool endpoint_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (uv_inet_pton(AF_INET, host, &v4) == 0)
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    if (uv_inet_pton(AF_INET6, host, &v6) == 0)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET);
    return strcasecmp(host, "localhost") == 0;
}

/* Lists of addresses */

static size_t size_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/*
 * Orders addresses, IPv4 first. If both families reach a host, the other nodes are more likely to have IPv4
 * too.
 */
static int compare(const void *a, const void *b)
{
    const struct sockaddr_storage *x = a, *y = b;

    if (x->ss_family != y->ss_family)
        return x->ss_family == AF_INET ? -1 : 1;
    return memcmp(x, y, size_of(x));
}

void endpoint_collect(struct endpoint_addresses *out, const struct addrinfo *found)
{
    int n = 0;

    *out = (struct endpoint_addresses){ 0 };
    for (; found != NULL && out->n < ENDPOINT_MAX_ADDRESSES; found = found->ai_next)
        if (found->ai_family == AF_INET || found->ai_family == AF_INET6)
            memcpy(&out->of[out->n++], found->ai_addr, found->ai_addrlen);
    qsort(out->of, (size_t)out->n, sizeof *out->of, compare);
    for (int i = 0; i < out->n; i++)
        if (i == 0 || compare(&out->of[i], &out->of[n - 1]) != 0)
            out->of[n++] = out->of[i];
    out->n = n;
}

static bool has(const struct endpoint_addresses *list, const struct sockaddr_storage *address)
{
    for (int i = 0; i < list->n; i++)
        if (compare(&list->of[i], address) == 0)
            return true;
    return false;
}

void endpoint_add(struct endpoint_addresses *list, const struct sockaddr_storage *address)
{
    if (list->n < ENDPOINT_MAX_ADDRESSES && !has(list, address))
        list->of[list->n++] = *address;
}

void endpoint_prefer(struct endpoint_addresses *addresses, const struct endpoint_addresses *known)
{
    addresses->n_known = 0;
    for (int i = 0; i < addresses->n; i++) {
        const struct sockaddr_storage address = addresses->of[i];

        if (!has(known, &address))
            continue;
        memmove(addresses->of + addresses->n_known + 1, addresses->of + addresses->n_known,
                (size_t)(i - addresses->n_known) * sizeof address);
        addresses->of[addresses->n_known++] = address;
    }
}

/*
 * Returns whether the address belongs to this host: only then can a socket be bound to it. Port 0 avoids
 * ports that are in use.
 */
static bool is_here(const struct sockaddr_storage *address)
{
    struct sockaddr_storage any_port = *address;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool here;

    if (fd < 0)
        return false;
    if (address->ss_family == AF_INET)
        ((struct sockaddr_in *)&any_port)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&any_port)->sin6_port = 0;
    here = bind(fd, (const struct sockaddr *)&any_port, (socklen_t)size_of(address)) == 0;
    close(fd);
    return here;
}

bool endpoint_is_here(const struct endpoint_addresses *addresses)
{
    for (int i = 0; i < addresses->n; i++)
        if (is_here(&addresses->of[i]))
            return true;
    return false;
}

void endpoint_wildcard(struct endpoint_addresses *out, int port)
{
    *out = (struct endpoint_addresses){ .n = 2 };
    uv_ip6_addr("::", port, (struct sockaddr_in6 *)&out->of[0]);
    uv_ip4_addr("0.0.0.0", port, (struct sockaddr_in *)&out->of[1]);
}
