/*
 * Finds the address at which other nodes reach this host, if the run has no endpoint. All nodes use the same
 * servers, for example an etcd. So this function takes the address from which this host connects to such a
 * server.
 */
#ifndef AGENT_OWN_ADDRESS_H
#define AGENT_OWN_ADDRESS_H

#include "agent/wire/endpoint.h"

/**
 * Copy to `host` the host of server number `n` of a list, "etcd://HOST[:PORT],HOST[:PORT],...", without the
 * brackets of an IPv6 address. After the last server, counting continues at the first. The list must be well
 * formed.
 */
void own_address_server(char host[ENDPOINT_HOST_BYTES], const char *servers, unsigned n);

/**
 * Find the address from which this host sends to a server; nothing is sent. If the server is on this host,
 * its name may be a loopback address here (Debian's /etc/hosts). Then `out` is the name, because other nodes
 * reach this host by it.
 *   server  the addresses of `name`
 * Returns false if the host has no route to any of them.
 */
bool own_address_towards(char out[ENDPOINT_HOST_BYTES], const struct endpoint_addresses *server,
                         const char *name);

#endif
