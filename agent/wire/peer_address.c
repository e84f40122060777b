/* The addresses of both ends of a connection, and their text form. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "agent/wire/peer_impl.h"

/*
 * Converts an IPv4 address inside an IPv6 one to plain IPv4. A socket for both families gives the former;
 * other nodes know the host by the latter.
 */
static void unmap(struct sockaddr_storage *address)
{
    const struct sockaddr_in6 mapped = *(const struct sockaddr_in6 *)address;
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;

    if (mapped.sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&mapped.sin6_addr))
        return;
    memset(address, 0, sizeof *address);
    v4->sin_family = AF_INET;
    v4->sin_port = mapped.sin6_port;
    memcpy(&v4->sin_addr, mapped.sin6_addr.s6_addr + 12, sizeof v4->sin_addr);
}

void peer_find_address(const struct peer *peer, bool ours, struct sockaddr_storage *address)
{
    int length = sizeof *address;

    memset(address, 0, sizeof *address);
    if (ours)
        uv_tcp_getsockname(&peer->tcp, (struct sockaddr *)address, &length);
    else
        uv_tcp_getpeername(&peer->tcp, (struct sockaddr *)address, &length);
    unmap(address);
}

void peer_format_address(const struct sockaddr_storage *address, char *host, size_t size, int *port)
{
    *port = 0;
    snprintf(host, size, "?");
    if (address->ss_family == AF_INET) {
        uv_ip4_name((const struct sockaddr_in *)address, host, size);
        *port = ntohs(((const struct sockaddr_in *)address)->sin_port);
    } else if (address->ss_family == AF_INET6) {
        uv_ip6_name((const struct sockaddr_in6 *)address, host, size);
        *port = ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    }
}

void peer_find_name(struct peer *peer)
{
    struct sockaddr_storage address;
    char host[64];
    int port;

    peer_find_address(peer, false, &address);
    peer_format_address(&address, host, sizeof host, &port);
    snprintf(peer->name, sizeof peer->name, address.ss_family == AF_INET6 ? "[%s]:%d" : "%s:%d", host, port);
}

void peer_address(const struct peer *peer, bool ours, char *out, size_t size)
{
    struct sockaddr_storage address;
    int port;

    peer_find_address(peer, ours, &address);
    peer_format_address(&address, out, size, &port);
}
