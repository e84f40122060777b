/*
 * The rendezvous endpoint as the user gave it, and the addresses that its name stands for. All addresses of
 * every family are kept, in the same order on every host. Two agents on one host that both try to listen
 * therefore try the same address first. The answers of the resolver are never cached, because a name may
 * appear or move while nodes wait for it.
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
    int n_known; /* how many of the first addresses have led to the other end before */
    struct sockaddr_storage of[ENDPOINT_MAX_ADDRESSES];
};

/**
 * Set an endpoint from a host, which may have the brackets of an IPv6 address, and a port. Returns
 * FSDP_ERR_CONFIG if there is no host or no port, or if the address means every host ("0.0.0.0", "::").
 */
enum fsdp_status endpoint_init(struct endpoint *endpoint, const char *host, int port, struct fsdp_err *err);

/** Write "host:29400" or "[::1]:29400" into `out` (ENDPOINT_TEXT_BYTES). Returns `out`. */
const char *endpoint_text(char *out, const char *host, int port);

/**
 * Is `host` "localhost", or a loopback address in digits? Any other name counts as not loopback. That holds
 * even if it resolves to 127.0.1.1 on its own host, as in Debian's /etc/hosts.
 */
bool endpoint_is_loopback(const char *host);

/**
 * Collect the addresses of `found` (NULL: none) into `out`, in order and each once, at most
 * ENDPOINT_MAX_ADDRESSES.
 */
void endpoint_collect(struct endpoint_addresses *out, const struct addrinfo *found);
/** Add an address, unless it is there already or the list is full. */
void endpoint_add(struct endpoint_addresses *list, const struct sockaddr_storage *address);
/** Put the addresses that are in `known` first, and count them in n_known. */
void endpoint_prefer(struct endpoint_addresses *addresses, const struct endpoint_addresses *known);
/** Does this host have one of these addresses? The function asks the system, and uses no port for that. */
bool endpoint_is_here(const struct endpoint_addresses *addresses);
/**
 * Gives the addresses that stand for all addresses of this host: "::", which takes IPv4 connections too, and
 * then "0.0.0.0" for a host without IPv6.
 */
void endpoint_wildcard(struct endpoint_addresses *out, int port);

#endif
