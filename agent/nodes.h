/*
 * The coordinator's view of the other nodes: each that joins becomes a member of the coordinator behind its
 * connection, what it reports becomes a report, and a connection that breaks is a lost node. Lives on node 0.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_NODES_H
#define AGENT_NODES_H

#include "agent/agent.h"
#include "agent/console.h"
#include "agent/coordinator.h"

struct nodes;

/** Listen at the rendezvous endpoint. `coordinator` and `console` (may be NULL) are borrowed until nodes_destroy(). */
enum fsdp_status nodes_create(struct nodes **out, uv_loop_t *loop, const struct agent_config *config,
                              struct coordinator *coordinator, struct console *console, struct fsdp_err *err);

/** The address by which the other nodes reach this one. */
const char *nodes_own_address(const struct nodes *nodes);

/** Close every connection after what is queued on it; memory is freed as the loop runs. NULL is a no-op. */
void nodes_destroy(struct nodes *nodes);

#endif
