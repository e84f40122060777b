/*
 * Measurements between two nodes over a TCP connection of their own: round-trip time, bandwidth in both
 * directions, and the difference of their clocks.
 *
 * Every node serves: a thread accepts one connection after another. A connection begins with a secret that
 * the nodes have told each other over their agents' sessions. An attacker who reads the secret on the wire
 * can disturb a measurement, but can get no data of a node.
 */
#ifndef AGENT_DOCTOR_PAIRS_H
#define AGENT_DOCTOR_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/status.h>

enum {
    PAIRS_SECRET_BYTES = 16,
    PAIRS_WORDS_BYTES = 96,
    PAIRS_MOST_ROUNDS = 63, /* with more than 64 nodes each one measures only some */
};

/* Node `a` has measured to node `b`. */
struct pair {
    int a, b;
    char error[PAIRS_WORDS_BYTES]; /* why the pair could not be measured; the other members are then 0 */
    int64_t round_trip_ns;         /* the shortest */
    int64_t clock_us;              /* what b's clock is ahead of a's */
    double forth, back;            /* bytes a second, from a to b and from b to a */
};

/**
 * The partner of a node in a round, or -1. In each of pairs_rounds() rounds every node has one partner at
 * most, and all pairs of up to 64 nodes come up once. Pure.
 */
int pairs_partner(int n_nodes, int round, int node);
int pairs_rounds(int n_nodes);

struct pairs_server;

/**
 * Listen at a free port, and serve the nodes that know `secret`.
 *   address  at which the others reach this node: if that is a loopback address, it listens there only, else
 *            on every address of this host
 *   n_nodes  nodes of the job; each client says its number
 *   port     gets the port
 * FSDP_ERR_IO, FSDP_ERR_NOMEM: nothing is left. It serves until the process ends.
 */
enum fsdp_status pairs_serve(struct pairs_server **out, const char *address,
                             const unsigned char secret[PAIRS_SECRET_BYTES], int n_nodes, int *port,
                             struct fsdp_err *err);

/**
 * Wait until the connection of `node` has come and ended, at most for `within_ms`. Returns whether it has.
 */
bool pairs_await(struct pairs_server *server, int node, int64_t within_ms);

/**
 * Measure to the node that serves at `host` and `port`. Takes half a second, and ten seconds where the other
 * end does not answer. Fills in everything but a and b.
 *   node  the number of this node
 */
void pairs_measure(struct pair *pair, const char *host, int port,
                   const unsigned char secret[PAIRS_SECRET_BYTES], int node);

#endif
