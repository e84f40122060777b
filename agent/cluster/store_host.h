/*
 * The store at which the programs of a generation meet (agent/tcpstore/tcpstore.h). The node of the first
 * seat has it, whichever node leads:
 *   1. The coordinator orders that node to open a store (struct proto_open) before a generation forms.
 *   2. The node looks up the addresses, opens the store, and reports where it is, or why it cannot.
 *   3. While the generation runs, the node reports which workers have come to the store.
 *   4. The coordinator orders to close it when the last worker of the generation is gone.
 * A report is a struct reporter_store, which has the number of the order.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_STORE_HOST_H
#define AGENT_STORE_HOST_H

#include <uv.h>

#include "agent/members/proto.h"

struct store_host;

/**
 * Create a host without a store; NULL: there is no memory.
 *   reporter  takes the reports; borrowed until store_host_destroy(). While its `to` is NULL, nothing is
 *             reported
 *   say       prints a line for the user
 */
struct store_host *store_host_create(uv_loop_t *loop, const struct reporter *reporter,
                                     void (*say)(void *arg, const char *words), void *arg);
/** Close the store. The loop's close callbacks free the rest. NULL is a no-op. */
void store_host_destroy(struct store_host *host);

/**
 * Open a store for a generation, and close the one before. A report follows, perhaps from within this call.
 * `order` is borrowed for the call.
 */
void store_host_open(struct store_host *host, int generation, const struct proto_open *order);
/** Close the store: its keys are lost, and its port is free. NULL and a host without a store are no-ops. */
void store_host_close(struct store_host *host);
/** Report when a client last changed a key, if there is a store. NULL is a no-op. */
void store_host_look(const struct store_host *host);
/** Returns the generation for which this node has a store; -1: it has none. */
int store_host_generation(const struct store_host *host);

#endif
