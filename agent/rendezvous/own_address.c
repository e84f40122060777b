#include "agent/rendezvous/own_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void own_address_server(char host[ENDPOINT_HOST_BYTES], const char *servers, unsigned n)
{
    const char *const first = strstr(servers, "://") + 3;
    const char *at = first;
    bool brackets;

    for (; n > 0; n--) {
        at += strcspn(at, ",");
        at = *at == ',' ? at + 1 : first;
    }
    brackets = *at == '[';
    at += brackets;
    snprintf(host, ENDPOINT_HOST_BYTES, "%.*s", (int)strcspn(at, brackets ? "]" : ":,"), at);
}

/* Connecting a datagram socket sends nothing: the kernel chooses the route, and so the address. */
static bool route(char out[ENDPOINT_HOST_BYTES], const struct sockaddr_storage *to)
{
    const socklen_t size =
        to->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    const int fd = socket(to->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    bool known;

    if (fd < 0)
        return false;
    known = connect(fd, (const struct sockaddr *)to, size) == 0 &&
            getsockname(fd, (struct sockaddr *)&from, &n) == 0 &&
            getnameinfo((struct sockaddr *)&from, n, out, ENDPOINT_HOST_BYTES, NULL, 0, NI_NUMERICHOST) == 0;
    close(fd);
    return known;
}

bool own_address_towards(char out[ENDPOINT_HOST_BYTES], const struct endpoint_addresses *server,
                         const char *name)
{
    for (int i = 0; i < server->n; i++) {
        if (!route(out, &server->of[i]))
            continue;
        if (endpoint_is_loopback(out) && !endpoint_is_loopback(name))
            snprintf(out, ENDPOINT_HOST_BYTES, "%s", name);
        return true;
    }
    return false;
}
