/*
 * The coordinator's end of the meeting (agent/cluster/meeting.h is a member's): it listens at the endpoint for as long as
 * the job lives, has whoever comes judged, and keeps a connection to each node that was let in, by its number.
 * Who holds no secret, says nothing, or talks nonsense is cut off and changes nothing.
 *
 * Callbacks run on the loop's thread; from within any callback every function here may be called.
 */
#ifndef AGENT_RENDEZVOUS_H
#define AGENT_RENDEZVOUS_H

#include <uv.h>

#include "agent/wire/endpoint.h"
#include "agent/wire/frame.h"
#include "agent/wire/peer.h"
#include "agent/wire/proto.h"

struct rendezvous;

struct rendezvous_handlers {
    /* A node that holds the secret asks to join from this address. Its number, 1 ... capacity - 1; or -1, with the
     * reason in *refused. */
    int (*judge)(void *arg, const struct proto_join *join, const char *address,
                 struct proto_refused *refused);
    void (*joined)(void *arg, int node); /* frames may be sent to it */
    /* A frame from a node. Its payload is valid during the call. */
    void (*message)(void *arg, int node, const struct frame *frame);
    /* The connection to a node is gone; it had been silent for so long. */
    void (*lost)(void *arg, int node, int64_t silent_ms, const char *words);
    /* A line for the log: who was refused, and why. */
    void (*note)(void *arg, const char *words);
};

/**
 * Listen on those of the addresses that are this host's. `peers` says how (its handlers are not looked at). Nobody
 * is taken in before rendezvous_serve().
 *   FSDP_ERR_BUSY       somebody listens there already
 *   FSDP_ERR_NOT_FOUND  none of them is this host's
 *   FSDP_ERR_IO         the system refuses
 */
enum fsdp_status rendezvous_listen(struct rendezvous **out, uv_loop_t *loop,
                                   const struct endpoint_addresses *addresses,
                                   const struct peer_config *peers, struct fsdp_err *err);

/** From now on nodes are taken in, with numbers below `capacity`. Once, before the loop runs again. */
enum fsdp_status rendezvous_serve(struct rendezvous *rendezvous, int capacity,
                                  const struct rendezvous_handlers *handlers, void *arg,
                                  struct fsdp_err *err);

/** Send to one node. No effect on one that is gone. */
void rendezvous_send(struct rendezvous *rendezvous, int node, enum proto_type type, uint32_t generation,
                     const void *payload, size_t size_bytes);
/** Break with a node, and say so to nobody: lost() is not called for it. */
void rendezvous_drop(struct rendezvous *rendezvous, int node);

/**
 * Our own address, numeric, for the other nodes: the one at which the last node that joined reached us. A node of this
 * host may reach us over loopback; its way counts only while no other node has joined. Before any has: the first
 * address that is listened on, or "127.0.0.1" where that is every one.
 */
const char *rendezvous_address(const struct rendezvous *rendezvous);

/**
 * Listen no more. Nodes are given RENDEZVOUS_LINGER_MS to close their connections themselves, which they do when
 * they have read the last word to them; freed when the loop has run. No callback follows. NULL is a no-op.
 */
enum { RENDEZVOUS_LINGER_MS = 3000 };
void rendezvous_destroy(struct rendezvous *rendezvous);

#endif
