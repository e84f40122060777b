/*
 * The coordinator's view of the other nodes: each that joins becomes a member of the coordinator behind its
 * connection, what it reports becomes a report, and a connection that breaks is a lost node.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_NODES_H
#define AGENT_NODES_H

#include "agent/cluster/coordinator.h"
#include "agent/cluster/rendezvous.h"
#include "agent/config.h"
#include "agent/output/console.h"

struct nodes;

/**
 * Take in whoever comes to `rendezvous`, which becomes the callee's, also on failure. `coordinator` and `console` (may
 * be NULL) are borrowed until nodes_destroy().
 */
enum fsdp_status nodes_create(struct nodes **out, const struct agent_config *config,
                              struct rendezvous *rendezvous, struct coordinator *coordinator,
                              struct console *console, struct fsdp_err *err);

/** The run is over: the connections linger until the others have closed them. NULL is a no-op. */
void nodes_destroy(struct nodes *nodes);

#endif
