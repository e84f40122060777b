/*
 * Opening the connections of a rail: each node listens on its own address, tells the port through the agents, and
 * connects to the nodes before it. Both ends prove that they hold the generation's token before a byte is believed:
 *
 *   accepting end   ->  challenge (32 random bytes)
 *   connecting end  ->  from, to, nonce (32 random bytes), HMAC("open", ...)
 *   accepting end   ->  HMAC("proof", ...)
 *
 * HMAC-SHA256 keyed by the token, over the word, generation, group, from, to, challenge and nonce: a proof is of no
 * use for another group, generation, pair or connection. What does not prove itself in time is closed, and is no error.
 *
 * The ranks first wait until all addresses of the rail are known; the agents' hang watch bounds that. Then every
 * connection must be open within 22 s, or the error names both ranks, address and port.
 */
#ifndef COMM_TCP_OPEN_H
#define COMM_TCP_OPEN_H

#include "shard_runtime/comm/tcp_mesh.h"

/**
 * fds (config->n): a connection to each node, -1 for this one; the caller's to close, also after a failure.
 *   FSDP_ERR_PEER  a connection was refused, or not opened in time; or another rank is gone
 */
enum fsdp_status tcp_open_all(int *fds, const struct tcp_mesh_config *config, struct fsdp_err *err);

#endif
