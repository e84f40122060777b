/*
 * A set of addresses of IPv4 and IPv6. Ports do not count, and IPv4 inside IPv6 equals IPv4. A look-up takes
 * the same time for any number of addresses. A set of zero bytes is empty.
 *
 * Pure: no sockets, no loop.
 */
#ifndef AGENT_TCPSTORE_ADDRESSES_H
#define AGENT_TCPSTORE_ADDRESSES_H

#include <stdbool.h>
#include <sys/socket.h>

#include "shard_runtime/core/table.h"

struct tcpstore_addresses {
    struct table table;
};

/**
 * Add an address. One that is there already, and one of another family, changes nothing. False: out of
 * memory.
 */
bool tcpstore_addresses_add(struct tcpstore_addresses *set, const struct sockaddr *address);
bool tcpstore_addresses_have(const struct tcpstore_addresses *set, const struct sockaddr *address);
/** Free all addresses. The set is empty afterwards. */
void tcpstore_addresses_fini(struct tcpstore_addresses *set);

#endif
