/*
 * How the agents of a job meet and stay in touch. Node 0 is the coordinator: it listens at the rendezvous endpoint
 * and waits until every other node has joined. A member connects, as often as it takes, and says who it is; whoever
 * does not fit (another build, job, number of nodes or workers, a node rank that is taken) is told why and goes, and
 * the coordinator waits on. After the world is formed there are no new members: a node that is lost is lost.
 *
 * Callbacks run on the loop's thread. failed() and lost() are told once; from within any callback every function
 * here may be called.
 */
#ifndef AGENT_RENDEZVOUS_H
#define AGENT_RENDEZVOUS_H

#include <uv.h>

#include "agent/frame.h"
#include "agent/proto.h"

struct rendezvous;

struct rendezvous_handlers {
    void (*formed)(void *arg); /* all nodes are here (coordinator), or our JOIN is on its way (member) */
    /* No world can be formed: `status` is the exit status of fsdprun. Nothing more follows. */
    void (*failed)(void *arg, int status, const char *words);
    /* A frame from node `node` (0 on a member). Its payload is valid during the call. */
    void (*message)(void *arg, int node, const struct frame *frame);
    /* The connection to node `node` is gone after formed(). */
    void (*lost)(void *arg, int node, const char *words);
    /* A line for the log: who was refused, what is waited for. */
    void (*note)(void *arg, const char *words);
};

struct rendezvous_config {
    const char *host; /* of the endpoint: what members connect to, and what the coordinator listens on */
    int port;
    const unsigned char *key; /* (TLS_KEY_BYTES), copied; NULL: clear text */
    uint64_t job;             /* frame.job of this job's connections: a hash of its id */
    int64_t join_timeout_ms;  /* until formed() */
    struct proto_join self;
    struct rendezvous_handlers handlers;
    void *arg;
};

/**
 * Begin. With one node formed() is called from the loop at once and nothing listens.
 *   FSDP_ERR_IO         the endpoint cannot be listened on
 *   FSDP_ERR_NOT_FOUND  its host has no address
 */
enum fsdp_status rendezvous_create(struct rendezvous **out, uv_loop_t *loop,
                                   const struct rendezvous_config *config, struct fsdp_err *err);

/** Send to one node (a member: always 0), or to every other node. No effect on those that are gone. */
void rendezvous_send(struct rendezvous *rendezvous, int node, enum proto_type type, uint32_t generation,
                     const void *payload, size_t size_bytes);
void rendezvous_broadcast(struct rendezvous *rendezvous, enum proto_type type, uint32_t generation,
                          const void *payload, size_t size_bytes);

/** The host name that node `node` gave; our own for our node rank. */
const char *rendezvous_host(const struct rendezvous *rendezvous, int node);
/** Our own address, numeric. Coordinator: the endpoint's; member: as its connection shows it, "127.0.0.1" before. */
const char *rendezvous_address(const struct rendezvous *rendezvous);
/** The address of node `node` as its connection shows it, numeric; empty when it is not connected. */
const char *rendezvous_peer_address(const struct rendezvous *rendezvous, int node);
/** How many other nodes are connected. */
int rendezvous_n_connected(const struct rendezvous *rendezvous);

/** Close all connections after what is queued; freed when the loop has run. No callback follows. */
void rendezvous_destroy(struct rendezvous *rendezvous);

#endif
