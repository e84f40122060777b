/*
 * Opening the connections of a rail. Each node listens on its own address, publishes the port through the
 * agents, and connects to the nodes with a lower index. Both ends prove that they hold the generation's token
 * before any byte is trusted:
 *   1. The accepting end sends a challenge: 32 random bytes.
 *   2. The connecting end sends from, to, a nonce (32 random bytes) and HMAC("open", ...).
 *   3. The accepting end checks it, and sends HMAC("proof", ...), which the connecting end checks.
 *
 * The HMAC is HMAC-SHA256, keyed by the token, over the word, generation, group, from, to, challenge and
 * nonce. So a proof is of no use for another group, generation, pair of ranks or connection. A connection
 * that does not prove itself in time is closed; that is not an error.
 *
 * First every rank waits until all addresses of the rail are known; the agents' hang watch bounds that. From
 * then on all connections must be open within 22 s. Otherwise the error names both ranks, address and port.
 */
#ifndef COMM_TCP_OPEN_H
#define COMM_TCP_OPEN_H

#include "shard_runtime/comm/tcp_mesh.h"

/**
 * Returns for how many milliseconds a rank waits for another host from which nothing comes. The agents decide
 * which node is lost, after a lease. They survive a cut of the network that is shorter than that. On a TCP
 * connection such a cut may be a silence of twice its length, because the retries of TCP are further and
 * further apart. Only what agents cannot see is left to the ranks: two nodes that both reach the host of the
 * job, and not each other.
 */
int64_t tcp_patience_ms(const struct link *link);

/**
 * Opens all connections of the rail; collective over it.
 *
 *   fds  (config->n) receives a non-blocking connection to each node, -1 for this one. The caller closes
 *        them, also after a failure.
 *
 *   FSDP_ERR_PEER  a connection was refused or not opened in time, or another rank or the agent is gone
 *   FSDP_ERR_IO    this node's own address cannot be used
 */
enum fsdp_status tcp_open_all(int *fds, const struct tcp_mesh_config *config, struct fsdp_err *err);

#endif
