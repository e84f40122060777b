/*
 * The rendezvous endpoint as it was given, and the addresses that its name stands for: all of them, of every
 * family, in one order on every host, so that two agents of one host that both try to listen try the same
 * address first. What the resolver says is never cached: a name may come to be, or move, while nodes wait for it.
 */
#ifndef AGENT_ENDPOINT_H
#define AGENT_ENDPOINT_H

#include <stdbool.h>
#include <uv.h>

#include <fsdp/status.h>

enum {
    ENDPOINT_MAX_ADDRESSES = 16,
    ENDPOINT_HOST_BYTES = 256,
    ENDPOINT_TEXT_BYTES = ENDPOINT_HOST_BYTES + 16
};

struct endpoint {
    char host[ENDPOINT_HOST_BYTES]; /* without the brackets of an IPv6 address */
    int port;
};

struct endpoint_addresses {
    int n;
    struct sockaddr_storage of[ENDPOINT_MAX_ADDRESSES];
};

/** FSDP_ERR_CONFIG: no host, no port, or an address that means every host ("0.0.0.0", "::"). */
enum fsdp_status endpoint_init(struct endpoint *endpoint, const char *host, int port, struct fsdp_err *err);

/** "host:29400", "[::1]:29400", in `out` (ENDPOINT_TEXT_BYTES), which is returned. */
const char *endpoint_text(char *out, const char *host, int port);

/** Is `host` "localhost", or a loopback address in digits? No other name is: its owner may know it as 127.0.1.1. */
bool endpoint_is_loopback(const char *host);

/** What was found: without what is there twice, in order. */
void endpoint_collect(struct endpoint_addresses *out, const struct addrinfo *found);
/** Does this host have one of these addresses? The system is asked; no port is taken. */
bool endpoint_is_here(const struct endpoint_addresses *addresses);
/**
 * The addresses that stand for every address of this host: "::", which takes IPv4 connections too, and then "0.0.0.0" for
 * a host without IPv6.
 */
void endpoint_wildcard(struct endpoint_addresses *out, int port);

#endif
