/*
 * The other nodes, as the coordinator sees them:
 *   - each node that joins becomes a member of the coordinator, reached over its session;
 *   - a message from it becomes a call of its struct reporter;
 *   - a session that ends makes it a lost node.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_NODES_H
#define AGENT_NODES_H

#include "agent/cluster/coordinator.h"
#include "agent/config.h"
#include "agent/output/console.h"
#include "agent/rendezvous/rendezvous.h"

struct nodes;

/**
 * Begin to accept nodes.
 *   rendezvous   to which the nodes connect. The callee owns it from now on, even if this function fails
 *   coordinator  borrowed until nodes_destroy()
 *   console      for lines about the nodes, borrowed until nodes_destroy(); NULL: descriptor 2
 *   lead         as for rendezvous_serve()
 * FSDP_ERR_NOMEM leaves nothing.
 */
enum fsdp_status nodes_create(struct nodes **out, const struct agent_config *config,
                              struct rendezvous *rendezvous, struct coordinator *coordinator,
                              struct console *console, const struct pulse_lead *lead, struct fsdp_err *err);

/** Tells the sessions with the other nodes that the loop has turned (rendezvous_turn()). NULL is a no-op. */
void nodes_turn(struct nodes *nodes);

/** The run is over. The other nodes still receive what was sent to them. NULL is a no-op. */
void nodes_destroy(struct nodes *nodes);

#endif
