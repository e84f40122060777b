/*
 * Which workers of a generation have connected to the store where they meet. This tells the phase of a
 * program that does not report a phase itself.
 *
 * On this host, a connection is traced to its process, so the worker is known. For other nodes only the
 * source address is known. All workers of such a node count as present once as many connections came from it
 * as it has workers.
 *
 * Pure: no sockets, no loop.
 */
#ifndef AGENT_ATTENDANCE_H
#define AGENT_ATTENDANCE_H

#include <stdbool.h>
#include <sys/types.h>

#include "shard_runtime/core/table.h"

struct attendance_node {
    int n_workers; /* 0: it takes no part */
    int n_known, n_unknown;
    pid_t *known; /* (n_workers) process ids of the workers that have come; the first n_known are set */
};

struct attendance {            /* all zero: no worker is expected */
    int n_nodes, n_incomplete; /* n_incomplete: nodes from which some workers have not come */
    struct attendance_node *nodes;
    /* the nodes' addresses; an address is removed when it is met after its node is complete */
    struct table addresses;
};

/**
 * Begin a generation of up to `n_nodes` nodes. Returns false if there is no memory: then no worker is
 * expected.
 */
bool attendance_begin(struct attendance *attendance, int n_nodes);
/**
 * Expect `n_workers` workers from a node. Returns false if there is no memory or no such node: then none is
 * expected from it.
 */
bool attendance_expect(struct attendance *attendance, int node, int n_workers);
/**
 * Connections from `address` count for `node`. A node may have several addresses, and several nodes may share
 * one. Returns false if there is no memory.
 */
bool attendance_add_address(struct attendance *attendance, int node, const char *address);
/** Returns a node with that address that still misses workers; -1: there is none. */
int attendance_node_at(struct attendance *attendance, const char *address);

/** Free everything; no worker is expected afterwards. */
void attendance_fini(struct attendance *attendance);

/** A connection came from that node. `pid` is the worker that made it, or 0 if that is not known. */
void attendance_came(struct attendance *attendance, int node, pid_t pid);

/** Has this worker connected? If its node made enough connections, the answer is yes for all its workers. */
bool attendance_has(const struct attendance *attendance, int node, pid_t pid);
/** Have all workers that are expected from this node connected? */
bool attendance_node_complete(const struct attendance *attendance, int node);
/** Have all expected workers of all nodes connected? False if no node is expected. */
bool attendance_complete(const struct attendance *attendance);

#endif
