/*
 * At which address other nodes reach this host, where no endpoint says it. Every node reaches the same
 * servers, an etcd for example: the address from which this host talks to one of them will do.
 */
#ifndef AGENT_OWN_ADDRESS_H
#define AGENT_OWN_ADDRESS_H

#include "agent/wire/endpoint.h"

/**
 * Find the host of one server of a list, "etcd://HOST[:PORT],HOST[:PORT],...", without the brackets of an
 * IPv6 address. It is number `n`, counted on from the first when the list is over. The list is well formed.
 */
void own_address_server(char host[ENDPOINT_HOST_BYTES], const char *servers, unsigned n);

/**
 * Find the address from which this host sends to a server; nothing is sent. If the server is on this host, it
 * is known here by a loopback address (Debian's /etc/hosts), and elsewhere by its name: then it is the name.
 *   server  the addresses of `name`
 * Returns false if the host has no route to any of them.
 */
bool own_address_towards(char out[ENDPOINT_HOST_BYTES], const struct endpoint_addresses *server,
                         const char *name);

#endif
